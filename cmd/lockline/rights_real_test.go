//go:build unix

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// setRules makes these the rules of a user of a server or Sentinel.
func setRules(t *testing.T, admin *redis.Client, user string, rules []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", user, "reset"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	testlock.Must(t, admin.Do(t.Context(), args...).Err())
	testlock.Must(t, admin.Do(t.Context(), "ACL", "LOG", "RESET").Err())
}

// refusedTo is what a server refused, but for what go-redis can do without.
func refusedTo(t *testing.T, admin *redis.Client) (objects []string) {
	t.Helper()
	entries, err := admin.ACLLog(t.Context(), 100).Result()
	testlock.Must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client") {
			objects = append(objects, e.Object)
		}
	}
	return objects
}

func TestTheDocumentedRightsOfAnOperatorShowAllAndFreeNothing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	s := testlock.NewSession(t, admin)
	take(t, rlock.New(s, "n"))
	take(t, fairlock.New(s, "n"))
	take(t, multilock.NewRedLock("n", s))
	take(t, rwlock.New(s, "n"))
	take(t, semaphore.New(s, "n", 2).Locker(1))
	rules := testlock.DocumentedRights(t).Operator
	addr := "operator:PASSWORD@" + server.Addr
	look := func() (failed string) {
		testlock.Must(t, admin.ScriptFlush(t.Context()).Err())
		for _, args := range [][]string{{"inspect", "n"}, {"ls"}} {
			out, errOut, code := operate(t, addr, args...)
			if code != exitOK || strings.Count(out, "process ") != 5 {
				failed += out + errOut
			}
		}
		return failed
	}
	setRules(t, admin, "operator", rules)
	if failed := look(); failed != "" {
		t.Error(failed)
	}
	if refused := refusedTo(t, admin); refused != nil {
		t.Errorf("refused: %q", refused)
	}
	if _, errOut, code := operate(t, addr, "unlock", "--force", "--kind", "fair", "n"); code != exitTrouble {
		t.Errorf("it may free a lock: exit code %d: %s", code, errOut)
	}
	for _, rule := range rules {
		if !strings.ContainsAny(rule[:1], "+~") {
			continue
		}
		setRules(t, admin, "operator", slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule }))
		if look() == "" {
			t.Errorf("%s can be left out", rule)
		}
	}
}

// What a user may not ask for ls, it may not ask for top.
func TestTopNeedsTheRightsThatLsNeeds(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	session := testlock.NewSession(t, server.Client(t))
	take(t, rlock.New(session, "a"))
	take(t, fairlock.New(session, "b"))
	wait(t, fairlock.New(testlock.NewSession(t, server.Client(t)), "b"))
	take(t, multilock.NewRedLock("c", session))
	rules := []any{"ACL", "SETUSER", "looker", "on", ">secret", "resetchannels", "~lockline:*"}
	for _, command := range []string{"scan", "eval", "evalsha", "hgetall", "pttl", "time", "zrange"} {
		rules = append(rules, "+"+command)
	}
	testlock.Must(t, admin.Do(t.Context(), rules...).Err())
	url := "looker:secret@" + server.Addr
	if out, errOut, code := operate(t, url, "ls"); code != exitOK || strings.Count(out, "\n") != 4 {
		t.Fatalf("ls: exit code %d: %s%s", code, out, errOut)
	}
	denied := func() map[string]bool {
		entries, err := admin.ACLLog(t.Context(), 100).Result()
		testlock.Must(t, err)
		objects := map[string]bool{}
		for _, e := range entries {
			objects[e.Object] = true
		}
		testlock.Must(t, admin.ACLLogReset(t.Context()).Err())
		return objects
	}
	ls := denied()
	rdb := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "looker", "secret" })
	o := topOperator(t, rdb, false)
	for by := range order(orders) {
		if s := o.sample(t.Context(), wish{pattern: "*", by: by, rows: 10}); s.err != nil || len(s.rows) != 3 {
			t.Errorf("by %v: %d rows, %v", by, len(s.rows), s.err)
		}
	}
	if s := o.sample(t.Context(), wish{lock: found{rlock.KindFair, "b"}}); s.err != nil || len(s.state.Queue) != 1 {
		t.Errorf("one lock: %+v, %v", s.state, s.err)
	}
	if top := denied(); len(top) > len(ls) || !maps.Equal(top, ls) {
		t.Errorf("top was refused %v, ls %v", top, ls)
	}
	testlock.Must(t, admin.Do(t.Context(), "ACL", "SETUSER", "looker", "-scan").Err())
	if s := o.sample(t.Context(), wish{pattern: "*"}); s.err == nil {
		t.Error("without the right to SCAN it says nothing")
	}
}
