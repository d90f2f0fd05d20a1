package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// A fullDevice is a writer that fails each write.
type fullDevice struct{}

func (fullDevice) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestACommandThatCannotWriteFails(t *testing.T) {
	m := theirRedis(t)
	t.Setenv("LOCKLINE_REDIS", "redis://"+m.Addr())
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	x := rlock.New(session, "x")
	take(t, x)
	wait(t, rlock.New(testlock.NewSession(t, testlock.Client(t, m.Addr())), "x"))
	for _, args := range []string{"", "--help", "--version", "ls", "ls --waits", "ls --json", "ls --help",
		"inspect x", "inspect --json x", "watch x", "doctor", "doctor --json", "script",
		"script lock/release", "man", "completion bash", "completion zsh", "completion --help", "exec --help",
		"unlock --force x"} {
		var errOut bytes.Buffer
		code := run(t.Context(), append([]string{"lockline"}, strings.Fields(args)...), fullDevice{}, &errOut)
		if code != exitTrouble || errOut.String() != "lockline: no space left\n" {
			t.Errorf("%s: exit code %d: %s", args, code, &errOut)
		}
	}
}

func TestALongCellMovesItsOwnRowAlone(t *testing.T) {
	long := strings.Repeat("n", widest+1)
	var out bytes.Buffer
	testlock.Must(t, writeTable(&out, [][]string{
		{"NAME", "KIND", "HOLDER"}, {"a", "fair", "x"}, {long, "fair", ""}, {"名", "f", "y"},
		{"short name", "", "z"},
	}))
	want := "NAME        KIND  HOLDER\n" +
		"a           fair  x\n" +
		long + "  fair\n" +
		"名          f     y\n" +
		"short name        z\n"
	if out.String() != want {
		t.Errorf("\n%s\nwant\n%s", &out, want)
	}
}
