//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
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

// refusedTo returns the objects that a server has refused. It leaves out requests that go-redis does not
// need.
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
	take(t, testlock.RedLock("n", s))
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
		others := slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })
		setRules(t, admin, "operator", others)
		if look() == "" {
			t.Errorf("%s can be left out", rule)
		}
	}
}
