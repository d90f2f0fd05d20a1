//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// startDemo runs lockline demo. It fails if that leaves anything in the directory for temporary files.
func startDemo(t *testing.T, args ...string) *lockline {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in the temporary directory: %v, %v", left, err)
		}
	})
	cmd := exec.Command(os.Args[0], append([]string{"demo", "--processes", "3"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	return start(t, cmd)
}

func TestDemoShowsThatAllIsRight(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   string
		theirs bool
		checks int
	}{
		"embedded":       {"", false, 6},
		"theirs":         {"", true, 6},
		"fair, embedded": {"--fair", false, 8},
		"fair, theirs":   {"--fair", true, 8},
		"redlock":        {"--redlock", false, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append(strings.Fields(test.args), "--for", "1s")
			m := theirRedis(t)
			if test.theirs {
				args = append(args, "--redis", "redis://"+m.Addr())
			}
			p := startDemo(t, args...)
			p.wantCode(exitOK)
			out := p.out.String()
			if strings.Count(out, "✓") != test.checks || strings.Contains(out, "\x1b") {
				t.Errorf("output:\n%s", out)
			}
			if shown := strings.Contains(out, "first in the queue (P"); shown != (test.args == "--fair") {
				t.Errorf("a queue was shown: %v\n%s", shown, out)
			}
			if keys := m.Keys(); len(keys) > 0 {
				t.Errorf("left in Redis: %q", keys)
			}
		})
	}
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--for 1m", "--for 1m --fair"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			m := theirRedis(t)
			p := startDemo(t, append(strings.Fields(args), "--redis", "redis://"+m.Addr())...)
			testlock.Eventually(t, "a process holds it", func() bool {
				_, rows, ok := strings.Cut(p.out.String(), "fencing token")
				return ok && strings.Contains(rows, "HOLD")
			})
			p.signal(syscall.SIGINT)
			p.wantCode(exitInterrupted)
			if keys := m.Keys(); len(keys) > 0 {
				t.Errorf("left in Redis: %q", keys)
			}
		})
	}
}

// watchedOutput calls found when seen is written after head.
type watchedOutput struct {
	bytes.Buffer
	head, seen string
	found      func()
}

func (w *watchedOutput) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.seen) && strings.Contains(w.String(), w.head) {
		w.found()
	}
	return w.Buffer.Write(p)
}

func TestDemoNoticesAProcessThatDies(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	file := t.TempDir() + "/counter"
	testlock.Must(t, os.WriteFile(file, []byte("0"), 0o600))
	var d *director
	out := &watchedOutput{head: "fencing token", seen: "HOLD", found: func() { d.children[2].Kill() }}
	o := demoOptions{processes: 3, duration: time.Minute}
	d = newDirector(o, newScreen(out, o))
	d.screen.intro("theirs", d.victim)
	testlock.Must(t, d.start(t.Context(), assignment{Redis: []target{{URL: "redis://" + m.Addr()}}, Prefix: "p", Lock: "l", File: file, Lease: demoLease}))
	testlock.Must(t, d.play(t.Context()))
	d.counter, d.fileErr = readCounter(file)
	c := judge(d.account)[5]
	if c.ok || !strings.Contains(c.says, "process 3 ended unexpectedly: signal: killed") {
		t.Errorf("processes: %+v", c)
	}
}
