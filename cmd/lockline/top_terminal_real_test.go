//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// A pane is a terminal. Each pane has its own tmux server.
type pane struct {
	t            *testing.T
	tmux, socket string
}

const noTmux = "no tmux in PATH"

// startPane starts a shell command in a new terminal.
func startPane(t *testing.T, width, height int, command string) *pane {
	t.Helper()
	tmux, err := exec.LookPath("tmux")
	switch {
	case err == nil:
	case os.Getenv("LOCKLINE_REQUIRE_TMUX") == "1":
		t.Fatal(noTmux)
	default:
		fmt.Fprintln(os.Stderr, t.Name()+": SKIPPED: "+noTmux) // go test shows no skips
		t.Skip("SKIPPED: " + noTmux)
	}
	dir, err := os.MkdirTemp("", "lockline") // the path of t.TempDir is too long for a socket
	testlock.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &pane{t, tmux, filepath.Join(dir, "tmux")}
	t.Cleanup(func() { _ = p.command("kill-server").Run() })
	p.run("new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), command)
	return p
}

func (p *pane) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.tmux, append([]string{"-u", "-f", "/dev/null", "-S", p.socket}, args...)...)
	cmd.Env = append(os.Environ(), "TMUX=", "LC_ALL=C.UTF-8", "SHELL=/bin/sh")
	return cmd
}

func (p *pane) run(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (p *pane) screen() string { return p.run("capture-pane", "-p") }

// shows waits until all texts are on the screen.
func (p *pane) shows(texts ...string) {
	p.t.Helper()
	last := ""
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Logf("looking for %q, the last screen was\n%s", texts, last)
		}
	})
	testlock.Eventually(p.t, strings.Join(texts, ", "), func() bool {
		last = p.screen()
		for _, text := range texts {
			if !strings.Contains(last, text) {
				return false
			}
		}
		return true
	})
	last = "as it should be"
}

func (p *pane) lacks(text string) {
	p.t.Helper()
	testlock.Eventually(p.t, "no "+text, func() bool { return !strings.Contains(p.screen(), text) })
}

// quoted quotes a word for the shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	session := testlock.NewSession(t, server.Client(t), rlock.WithLabel("till 3"))
	take(t, rlock.New(session, "orders:42"))
	take(t, rlock.New(session, "\x1b]2;hacked\x07\x1b[2J"))
	take(t, fairlock.New(session, "printer"))
	wait(t, fairlock.New(testlock.NewSession(t, server.Client(t), rlock.WithLabel("till 4")), "printer"))

	p := startPane(t, 80, 24, fmt.Sprintf("echo before; while read -r interval; do "+
		"%s top --redis redis://%s --interval $interval; echo ended with $?; stty -a; done",
		quoted(os.Args[0]), server.Addr))
	p.shows("before")
	p.keys("100ms", "Enter")
	p.shows("lockline top  ", server.Addr, "3 of 3 locks, sorted by waiting", "orders:42  ",
		`"\x1b]2;hacked`, "q quit")
	got := strings.Split(p.screen(), "\n")
	if len(got) < 24 || !strings.HasPrefix(got[4], "printer ") || !strings.HasPrefix(got[23], "q quit") {
		t.Errorf("it shows\n%s", strings.Join(got, "\n"))
	}
	pane := p.run("display-message", "-p", "#{alternate_on} #{pane_title}")
	if !strings.HasPrefix(pane, "1 ") || strings.Contains(pane, "hacked") {
		t.Errorf("alternate screen, and title of the terminal: %q", pane)
	}

	p.keys("s")
	p.shows("sorted by held for")
	p.keys("s", "s", "s") // back to the first order; only "printer" has waiters
	p.shows("sorted by waiting")
	p.run("resize-window", "-x", "160", "-y", "5")
	p.shows("TOKEN", "0 of 3 locks")
	p.run("resize-window", "-x", "160", "-y", "6")
	p.shows("1 of 3 locks", "printer")
	p.keys("Down")
	p.lacks("printer")
	p.keys("Up")
	p.shows("printer")
	p.run("resize-window", "-x", "80", "-y", "24")
	p.lacks("TOKEN")

	server.Kill()
	p.shows("failing since", "orders:42 ")
	server.Restart(t)
	p.lacks("failing since")
	take(t, fairlock.New(testlock.NewSession(t, server.Client(t)), "after it"))
	p.shows("after it ")

	p.keys("q")
	p.shows("before", "ended with 0", " icanon", " echo ")
	if got := p.run("display-message", "-p", "#{alternate_on} #{cursor_flag}"); got != "0 1\n" {
		t.Errorf("alternate screen, and cursor: %q", got)
	}
	p.keys("10m", "Enter")
	p.shows("every 10m", "after it ")
	p.keys("C-c")
	p.shows("ended with 130", " icanon", " echo ")
}

// If ls finds nothing, it writes a line on a terminal. Without this line, a wrong prefix would look like a
// server without locks. In a pipe, ls does not write the line, because programs do not expect it.
func TestLsSaysOnATerminalAloneThatItFoundNothing(t *testing.T) {
	t.Parallel()
	ls := fmt.Sprintf("%s ls --redis redis://%s --prefix other", quoted(os.Args[0]), theirRedis(t).Addr())
	p := startPane(t, 100, 24, fmt.Sprintf("%s; echo first; %[1]s '[ab]*'; echo second; "+
		"%[1]s 2>&1 | cat; %[1]s --json; echo third; sleep 60", ls))
	p.shows("third")
	const want = "lockline: nothing is held or waited for (prefix other)\nfirst\n" +
		"lockline: nothing of the names \"[ab]*\" is held or waited for (prefix other)\nsecond\n[]\nthird\n"
	if got := p.screen(); !strings.HasPrefix(got, want) {
		t.Errorf("it shows\n%s\nwant\n%s", got, want)
	}
}
