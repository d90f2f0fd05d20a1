//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// execIn returns a shell command that runs a script under the lock "n".
func execIn(addr, script string) string {
	return fmt.Sprintf("%s exec --redis redis://%s n -- sh -c %s", quoted(os.Args[0]), addr, quoted(script))
}

func TestACommandInAPipelineReadsFromTheTerminal(t *testing.T) {
	t.Parallel()
	script := execIn(theirRedis(t).Addr(), "echo ready; read x; echo got $x; read x; echo got $x")
	p := startPane(t, 80, 24, "set -m; "+script+" | cat; read x; echo then $x; sleep 60")
	p.shows("ready")
	p.keys("one", "Enter")
	p.shows("got one")
	p.keys("C-z", "two", "Enter")
	p.shows("got two")
	p.keys("three", "Enter")
	p.shows("then three")
}

func TestAPagerUsesTheTerminalAfterTheCommand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	script := execIn(theirRedis(t).Addr(), "echo ready; read x; echo got $x; read x; echo got $x")
	pager := "echo $$ >" + quoted(file) + "; read x; echo $x; read x; echo $x; " +
		"read x </dev/tty; echo pager $x; cat"
	// Bash notices that the pager continues. Some other shells take the terminal back when lockline ends.
	p := startPane(t, 80, 24, startBash(t).path+" --norc")
	p.keys("PS1=; clear; "+script+" | sh -c "+quoted(pager)+"; echo ended", "Enter")
	p.shows("ready\n")
	p.keys("one", "Enter")
	p.shows("got one")
	testlock.Eventually(t, "the pager is stopped", func() bool {
		state, err := exec.Command("ps", "-o", "stat=", "-p", lines(file)[0]).Output()
		return err == nil && strings.HasPrefix(string(state), "T")
	})
	p.keys("two", "Enter")
	p.keys("three", "Enter")
	p.shows("pager three", "got two", "ended")
}

func TestACommandThatIsStoppedInTheBackgroundIsReported(t *testing.T) {
	t.Parallel()
	script := execIn(theirRedis(t).Addr(), "read x </dev/tty")
	p := startPane(t, 160, 24, "set -m; "+script+" & read x; kill $!; wait $!; echo ended with $?; sleep 60")
	p.shows(`lock "n": the command was stopped (stopped (tty input)), because it uses the terminal`)
	p.keys("Enter")
	p.shows("ended with 143")
}

func TestACommandThatWasStoppedContinuesInTheForeground(t *testing.T) {
	t.Parallel()
	script := execIn(theirRedis(t).Addr(), "read x </dev/tty; echo got $x")
	p := startPane(t, 160, 24, startBash(t).path+" --norc")
	p.keys("PS1=; clear; "+script+" &", "Enter")
	p.shows("the command was stopped")
	p.keys("fg; echo ended", "Enter")
	p.shows(" exec --redis ") // bash prints the command that comes into the foreground
	p.keys("one", "Enter")
	p.shows("got one", "ended")
}
