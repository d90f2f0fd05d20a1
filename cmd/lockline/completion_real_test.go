//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	redisserver "github.com/alicebob/miniredis/v2/server"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// A bash is a shell that has sourced the completion script. It finds the program lockline in its PATH.
type bash struct {
	path string // path of the shell
	dir  string // folder with the script and the program
}

func startBash(t *testing.T) bash {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		fmt.Fprintln(os.Stderr, t.Name()+": SKIPPED: no bash in PATH") // go test shows no skips
		t.Skip("SKIPPED: no bash in PATH")
	}
	b := bash{path, t.TempDir()}
	program, err := os.Executable()
	testlock.Must(t, err)
	testlock.Must(t, os.Symlink(program, filepath.Join(b.dir, "lockline")))
	var script, errOut bytes.Buffer
	code := run(t.Context(), []string{"lockline", "completion", "bash"}, &script, &errOut)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	testlock.Must(t, os.WriteFile(filepath.Join(b.dir, "script"), script.Bytes(), 0o600))
	return b
}

// offers returns the words that bash would offer for the last word of a line. As bash does, it cuts words at
// spaces, colons and = signs.
func (b bash) offers(t *testing.T, line string, env ...string) []string {
	t.Helper()
	var words []string
	for field := range strings.FieldsSeq(line) {
		if strings.HasPrefix(field, `"`) || strings.HasPrefix(field, `'`) {
			words = append(words, field)
			continue
		}
		from := 0
		for i, c := range field {
			if c == ':' || c == '=' {
				if from < i {
					words = append(words, field[from:i])
				}
				words = append(words, string(c))
				from = i + 1
			}
		}
		if from < len(field) {
			words = append(words, field[from:])
		}
	}
	if strings.HasSuffix(line, " ") {
		words = append(words, "")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testlock.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, append([]string{"--norc", "-c", `source "$0/script"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_lockline
printf '%s\n' "${COMPREPLY[@]}"`, b.dir, line}, words...)...)
	cmd.Env = slices.Concat(os.Environ(),
		[]string{"PATH=" + b.dir + ":" + os.Getenv("PATH"), "COMP_WORDBREAKS= \t\n\"'><=;|&(:"}, env)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	cmd.WaitDelay = time.Second // processes that bash has started may keep stdout open
	out, err := cmd.Output()
	if err != nil || errOut.Len() > 0 {
		t.Errorf("%s: %v: %s", line, err, &errOut)
	}
	return strings.Fields(strings.ReplaceAll(string(out), " ", "_"))
}

func TestShellsUnderstandTheirScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		var script bytes.Buffer
		run(t.Context(), []string{"lockline", "completion", shell}, &script, &script)
		check := exec.Command(path, "-n")
		check.Stdin = &script
		if text, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s does not understand its script: %s", shell, text)
		}
	}
}

func TestBashCompletesNamesOfLocks(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	for _, name := range []string{"orders:42", "orders:43", "report", "till 3", "a\nb", "a\\b"} {
		take(t, rlock.New(session, name))
	}
	take(t, fairlock.New(session, "orders:42")) // the name "orders:42" is offered only once
	app := testlock.NewSession(t, testlock.Client(t, m.Addr()), rlock.WithPrefix("app"))
	take(t, rlock.New(app, "stock:1:2"))
	b := startBash(t)
	here := "LOCKLINE_REDIS=redis://" + m.Addr()
	for line, want := range map[string]string{
		"lockline insp":                         "inspect",
		"lockline inspect ":                     `orders:42 orders:43 report till\_3`,
		"lockline inspect or":                   "orders:42 orders:43",
		"lockline inspect orders:":              "42 43",
		"lockline inspect orders:42":            "42",
		`lockline inspect "orders:`:             "orders:42 orders:43",
		`lockline inspect 'till`:                "till_3",
		"lockline inspect none":                 "",
		"lockline inspect report ":              "",
		"lockline watch r":                      "report",
		"lockline ls r":                         "report",
		"lockline top r":                        "report",
		"lockline top --in":                     "--interval",
		"lockline unlock --force r":             "report",
		"lockline unlock --fo":                  "--force",
		"lockline exec --wait 1s r":             "report",
		"lockline exec --prefix app ":           "stock:1:2",
		"lockline exec --prefix=app stock:1:":   "2",
		"lockline exec report ":                 "",
		"lockline exec report -- ":              "",
		"lockline doctor ":                      "",
		b.dir + "/lockline inspect rep":         "report",
		"lockline inspect $(touch${IFS}hacked)": "",
	} {
		if got := strings.Join(b.offers(t, line, here), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	url := "redis://" + m.Addr()
	for _, url := range []string{url, `"` + url + `/0?protocol=2&pool_size=1"`, `'` + url + `'`} {
		line := "lockline inspect --redis " + url + " rep"
		got := b.offers(t, line, "LOCKLINE_REDIS=redis://127.0.0.1:1")
		if !slices.Equal(got, []string{"report"}) {
			t.Errorf("%s: %q", line, got)
		}
	}
	if _, err := os.Stat("hacked"); err == nil {
		t.Error("a half-written line was run")
	}
	slow := theirRedis(t)
	slow.Server().SetPreHook(func(_ *redisserver.Peer, cmd string, _ ...string) bool {
		return cmd == "SCAN" // true means that SCAN gets no reply
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testlock.Must(t, err)
	defer listener.Close() // no program replies on its connections
	const noLimit = "?read_timeout=0"
	silent := listener.Addr().String()
	for _, addr := range []string{slow.Addr() + noLimit, silent + noLimit, "127.0.0.1:1", ":x"} {
		if got := b.offers(t, "lockline inspect ", "LOCKLINE_REDIS=redis://"+addr); len(got) > 0 {
			t.Errorf("of %s it offers %q", addr, got)
		}
	}
}
