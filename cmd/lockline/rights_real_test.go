//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// setRules replaces the rules of a user of a server or a Sentinel. It also clears the log of refusals.
func setRules(t *testing.T, admin *redis.Client, user string, rules []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", user, "reset"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	testlock.Must(t, admin.Do(t.Context(), args...).Err())
	testlock.Must(t, admin.Do(t.Context(), "ACL", "LOG", "RESET").Err())
}

// refusedTo returns the commands, keys and channels that the log of refusals has. It leaves out the CLIENT
// commands, because go-redis works without them.
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

func TestDoctorNamesTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	rules := testlock.DocumentedRights(t).Server
	password := rules[slices.IndexFunc(rules, func(r string) bool { return r[0] == '>' })][1:]
	url := "redis://lockline:" + password + "@" + server.Addr
	missing := func() []string {
		o := &operator{prefix: "lockline", kinds: lockKinds}
		testlock.Must(t, o.open(t.Context(), target{URL: url}))
		defer o.close()
		return o.missingRights(t.Context())
	}
	setRules(t, admin, "lockline", rules)
	if got := missing(); got != nil {
		t.Errorf("with all rights: %q", got)
	}
	for _, rule := range rules {
		if !strings.ContainsAny(rule[:1], "+~&") || rule == "+ping" { // not a right, or needed to connect
			continue
		}
		others := slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })
		setRules(t, admin, "lockline", others)
		if got := missing(); !slices.Equal(got, []string{rule}) {
			t.Errorf("without %s: %q", rule, got)
		}
	}
	if left := keys(t, admin); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	setRules(t, admin, "lockline", append(slices.Clone(rules), "-hset", "-zadd"))
	for _, f := range examine(t, url, time.Now) {
		if f.Check == "locks" && (!strings.HasSuffix(f.Do, "it lacks +hset +zadd") ||
			strings.Contains(f.Found, "lockline doctor")) {
			t.Errorf("%+v", f)
		}
	}
}

func TestDoctorSaysWhatToDoAboutAPassword(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	setRules(t, server.Client(t), "off", []string{"off", ">secret", "+@all", "~*"})
	for _, f := range examine(t, "redis://off:secret@"+server.Addr, time.Now) {
		if f.Status != failure || !strings.Contains(f.Do, "ACL GETUSER") ||
			f.See != "docs/operations.md#redis-refuses" {
			t.Errorf("%+v", f)
		}
	}
}
