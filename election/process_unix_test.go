//go:build unix

package election_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

const shortLease = 2 * time.Second

// leaderProcess is a process that leads until that ends, and says so.
func leaderProcess(addr string) {
	s, err := rlock.NewSession(redis.NewClient(&redis.Options{Addr: addr}), rlock.WithWatchdogTimeout(shortLease), rlock.WithLogger(testlock.Quiet))
	if err != nil {
		panic(err)
	}
	ctx, l, err := election.New(s, "x").Campaign(bg, "child")
	fmt.Println("leads", l.Token(), err)
	<-ctx.Done()
	fmt.Println("ended", l.Err())
}

// startLeader starts such a process, and returns its token and what it says when it ends.
func startLeader(t *testing.T, addr string) (child *exec.Cmd, token int64, ended <-chan string) {
	t.Helper()
	child = testlock.Child(addr)
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

func TestAKilledLeaderIsReplacedWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	child, token, _ := startLeader(t, server.Addr)
	w := observe(t, election.New(testlock.NewSession(t, rdb), "x"))
	w.seesAtLast(token, "child")
	all := newLine(t)
	all.join(election.New(testlock.NewSession(t, rdb), "x"), 1, "next")
	testlock.Must(t, child.Process.Kill())
	n := all.next()
	if n.Token() <= token {
		t.Errorf("token %d after %d", n.Token(), token)
	}
	w.seesAtLast(n.Token(), "next")
	resign(t, n.Leadership)
}

func TestAFrozenLeaderIsReplacedAndFindsOutWhenItGoesOn(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	child, token, ended := startLeader(t, server.Addr)
	e := election.New(testlock.NewSession(t, server.Client(t)), "x")
	testlock.Must(t, child.Process.Signal(syscall.SIGSTOP))
	_, l := lead(t, e, "next")
	if l.Token() <= token {
		t.Errorf("token %d after %d", l.Token(), token)
	}
	testlock.Must(t, child.Process.Signal(syscall.SIGCONT))
	if said := testlock.Receive(t, "the child finds out", ended); !strings.HasPrefix(said, "ended ") || !strings.Contains(said, "lost") {
		t.Errorf("the child says %q", said)
	}
	wantLeader(t, e, l.Token(), "next")
	resign(t, l)
}
