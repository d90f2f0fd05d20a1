//go:build unix

package election_test

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// startLeader starts a leaderProcess, and returns its token. The channel receives the line that the process
// prints at its end.
func startLeader(t *testing.T, rdb *redis.Client) (child *exec.Cmd, token int64, ended <-chan string) {
	t.Helper()
	child = testlock.Child(rdb.Options().Addr, testlock.Prefix(rdb))
	out, err := child.StdoutPipe()
	testlock.Must(t, err)
	testlock.Must(t, child.Start())
	lines, done := make(chan string, 10), make(chan struct{})
	go func() {
		defer close(done)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		_ = child.Process.Kill()
		<-done
		_ = child.Wait()
	})
	words := strings.Fields(testlock.Receive(t, "the child leads", lines))
	if len(words) != 3 || words[0] != "leads" {
		t.Fatalf("the child says %q", words)
	}
	token, err = strconv.ParseInt(words[1], 10, 64)
	testlock.Must(t, err)
	return child, token, lines
}

// Proves: election
func TestAKilledLeaderIsReplacedWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	child, token, _ := startLeader(t, rdb)
	seen := observe(t, newElection(t, rdb))
	seen.seesAtLast(token, "child")
	testlock.Must(t, child.Process.Kill())
	_, l := lead(t, newElection(t, rdb), "next")
	if l.Token() <= token {
		t.Errorf("token %d after %d", l.Token(), token)
	}
	seen.seesAtLast(l.Token(), "next")
	resign(t, l)
}

// Proves: election
func TestAFrozenLeaderIsReplacedAndFindsOutWhenItGoesOn(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	child, token, ended := startLeader(t, rdb)
	e := newElection(t, rdb)
	testlock.Must(t, child.Process.Signal(syscall.SIGSTOP))
	_, l := lead(t, e, "next")
	if l.Token() <= token {
		t.Errorf("token %d after %d", l.Token(), token)
	}
	testlock.Must(t, child.Process.Signal(syscall.SIGCONT))
	said := testlock.Receive(t, "the child finds out", ended)
	if !strings.HasPrefix(said, "ended ") || !strings.Contains(said, "lost") {
		t.Errorf("the child says %q", said)
	}
	wantLeader(t, e, l.Token(), "next")
	resign(t, l)
}
