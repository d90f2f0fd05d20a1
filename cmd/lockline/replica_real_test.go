//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

func TestAReplicaIsAnErrorOfEachCommandThatLooks(t *testing.T) {
	t.Parallel()
	e := testlock.NewEndpoint(t)
	take(t, rlock.New(testlock.NewSession(t, e.Old.Client(t)), "n"))
	documented := testlock.DocumentedRights(t)
	for _, rights := range [][]string{documented.Operator, documented.Server} {
		testlock.User(t, e.Promoted, "looker", anys(rights)...)
		addr := "looker:PASSWORD@" + e.Promoted.Addr
		for _, args := range [][]string{
			{"ls"}, {"inspect", "n"}, {"watch", "n"}, {"unlock", "--force", "n"},
		} {
			out, errOut, code := operate(t, addr, args...)
			says := strings.Contains(errOut, "is a replica, whose data may be old")
			if code != exitTrouble || out != "" || !says {
				t.Errorf("%v: exit code %d, %q, %q", args, code, out, errOut)
			}
		}
		found := examine(t, "redis://"+addr, time.Now)
		found.want(t, "replication", failure, "this is a replica")
	}
}

func TestNamesThatLocksOfSeveralKindsHaveArePointedAt(t *testing.T) {
	t.Parallel()
	rdb := testlock.Client(t, theirRedis(t).Addr())
	s := testlock.NewSession(t, rdb)
	for _, name := range []string{"a", "n", "z"} {
		take(t, rlock.New(s, name))
	}
	_, err := latch.New(s, "a").TrySet(t.Context(), 1)
	testlock.Must(t, err)
	addr := rdb.Options().Addr
	if _, errOut, code := operate(t, addr, "ls"); code != exitOK || errOut != "" {
		t.Errorf("with one kind of each name: exit code %d, %q", code, errOut)
	}
	take(t, fairlock.New(s, "n"))
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}} {
		_, errOut, code := operate(t, addr, args...)
		once := strings.Count(errOut, "\n") == 1 && strings.Contains(errOut, `"n" (fair, reentrant)`)
		if code != exitOK || !once {
			t.Errorf("%v: exit code %d, %q", args, code, errOut)
		}
	}
	o := &operator{prefix: "lockline", kinds: lockKinds, pattern: "*"}
	testlock.Must(t, o.open(t.Context(), target{URL: "redis://" + addr}))
	defer o.close()
	if got := o.checkLocked(t.Context())[0]; got.Status != warning || got.Found != `"n" (fair, reentrant)` {
		t.Errorf("doctor: %+v", got)
	}
}
