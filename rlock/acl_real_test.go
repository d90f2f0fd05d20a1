package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

func setUser(t *testing.T, admin *redis.Client, rules []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "lockline", "reset"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	for _, command := range [][]any{
		args, {"SCRIPT", "FLUSH"}, {"FLUSHALL"}, {"ACL", "LOG", "RESET"}, {"CONFIG", "RESETSTAT"},
	} {
		if err := admin.Do(bg, command...).Err(); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
}

// denied returns the commands, keys and channels that the server has refused to a user. It leaves out
// commands that go-redis does not need.
func denied(t *testing.T, admin *redis.Client) (objects []string) {
	t.Helper()
	entries, err := admin.ACLLog(bg, 100).Result()
	testlock.Must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client") {
			objects = append(objects, e.Object)
		}
	}
	return objects
}

// beats is longer than the time between two heartbeats of the sessions in everything.
const beats = 3500 * time.Millisecond

// everything calls all methods of a lock that programs use, from two sessions. One wait ends after the time
// wait.
func everything(ctx context.Context, rdb rlock.Client, newMutex testlock.AnyMaker, name string,
	wait time.Duration,
	options ...rlock.SessionOption) (err error) {
	options = append(options, rlock.WithLogger(testlock.Quiet), rlock.WithWaiterTimeout(5*time.Second))
	waits := make(testlock.Waits, 10)
	one, err := rlock.NewSession(rdb, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, one.Close()) }()
	two, err := rlock.NewSession(rdb, append(options, rlock.WithObserver(waits))...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, two.Close()) }()
	lock, other := newMutex(one, name), newMutex(two, name)

	held, hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	_, nested, err := lock.Lock(held)
	if err != nil {
		return err
	}
	if err := nested.Unlock(ctx); err != nil {
		return err
	}
	if err := hold.Extend(ctx, time.Minute); err != nil {
		return err
	}
	if _, err := lock.Inspect(ctx); err != nil {
		return err
	}
	// One Lock gives up after some heartbeats, and the next one is woken.
	if _, _, err := other.Lock(ctx, rlock.WaitAtMost(wait)); !errors.Is(err, rlock.ErrLocked) {
		return fmt.Errorf("a wait that ran out: %w", err)
	}
	got := make(chan error, 1)
	for len(waits) > 0 {
		<-waits
	}
	go func() {
		_, hold, err := other.Lock(ctx)
		if err == nil {
			err = hold.Unlock(ctx)
		}
		got <- err
	}()
	select {
	case <-waits:
	case err := <-got:
		return fmt.Errorf("ended before it could: %w", err)
	}
	if err := errors.Join(hold.Unlock(ctx), <-got); err != nil {
		return err
	}

	_, hold, err = lock.Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := other.ForceUnlock(ctx); err != nil {
		return err
	}
	if err := hold.Unlock(ctx); !errors.Is(err, rlock.ErrLost) {
		return fmt.Errorf("the unlock of a lock that was forced open: %w", err)
	}
	_, _, err = lock.Lock(ctx) // Close frees this hold
	return err
}

// linger waits for two latches, so that the session has two subscriptions. It ends one wait, and returns
// after the session has sent UNSUBSCRIBE and PING. Locks would not do, because a session has one channel for
// all of them.
func linger(ctx context.Context, rdb rlock.Client, admin *redis.Client) error {
	s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
	if err != nil {
		return err
	}
	defer s.Close()
	for _, name := range []string{"x", "y"} {
		if _, err := latch.New(s, name).TrySet(ctx, 1); err != nil {
			return err
		}
	}
	until := func(ok func() bool) error {
		for !ok() {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		return nil
	}
	wait := func(name string) (stop func()) { // returns after the subscription, or after a refusal
		waiting, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); _ = latch.New(s, name).Wait(waiting) }()
		_ = until(func() bool { return len(admin.PubSubChannels(ctx, "*{"+name+"}*").Val()) > 0 })
		return func() { cancel(); <-ended }
	}
	defer wait("x")()
	wait("y")()
	return until(func() bool { return called(admin, "ping") && called(admin, "unsubscribe") })
}

func called(admin *redis.Client, command string) bool {
	return strings.Contains(admin.Info(bg, "commandstats").Val(), "cmdstat_"+command+":calls=")
}

// allKinds calls everything for every kind of lock, all at the same time.
func allKinds(ctx context.Context, rdb rlock.Client, admin *redis.Client) error {
	todo := []func() error{
		func() error { return severalAtOnce(ctx, rdb) },
		func() error { return permits(ctx, rdb) },
		func() error { return linger(ctx, rdb, admin) },
		func() error { return damaged(ctx, rdb, admin) },
	}
	for kind, newMutex := range testlock.AnyKinds {
		todo = append(todo, func() error {
			if err := everything(ctx, rdb, newMutex, "x", beats); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			return nil
		})
	}
	errs := make(chan error)
	for _, do := range todo {
		go func() { errs <- do() }()
	}
	var all error
	for range todo {
		all = errors.Join(all, <-errs)
	}
	return all
}

// damaged frees a lock with a hash that somebody has edited.
func damaged(ctx context.Context, rdb rlock.Client, admin *redis.Client) error {
	s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
	if err != nil {
		return err
	}
	defer s.Close()
	m := rlock.New(s, "damaged")
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	if err := admin.HSet(ctx, "lockline:r:{damaged}", "token", "x").Err(); err != nil {
		return err
	}
	if _, err = m.ForceUnlock(ctx); err != nil {
		return err
	}
	_ = hold.Unlock(ctx) // returns ErrLost
	return nil
}

// permits acquires permits of a semaphore.
func permits(ctx context.Context, rdb rlock.Client) error {
	s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
	if err != nil {
		return err
	}
	defer s.Close()
	permit := semaphore.New(s, "x", 2)
	_, hold, err := permit.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	return errors.Join(permit.Do(ctx, 1, func(context.Context) error { return nil }), hold.Unlock(ctx))
}

// severalAtOnce acquires two locks in one pipeline.
func severalAtOnce(ctx context.Context, rdb rlock.Client) error {
	s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
	if err != nil {
		return err
	}
	defer s.Close()
	return testlock.Cycle(ctx, multilock.New(rlock.New(s, "a"), rlock.New(s, "b")))
}

func asLockline(o *redis.Options) { o.Username, o.Password = "lockline", "PASSWORD" }

// Proves: rights
func TestTheDocumentedRightsSufficeAndNoneCanBeLeftOut(t *testing.T) {
	t.Parallel()
	rules := testlock.DocumentedRights(t)
	for what, c := range map[string]struct {
		rights, more []string // the test shows that each rule of more is needed
		do           func(ctx context.Context, rdb, admin *redis.Client) error
	}{
		"all kinds": {nil, rules.Server, func(ctx context.Context, rdb, admin *redis.Client) error {
			return allKinds(ctx, rdb, admin)
		}},
		"Redisson's keys": {rules.Server, rules.Redisson, func(
			ctx context.Context, rdb, _ *redis.Client,
		) error {
			return everything(ctx, rdb, testlock.Any(redisson.NewFenced), "orders:1", time.Second)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			admin := server.Client(t)
			setUser(t, admin, slices.Concat(c.rights, c.more))
			// The queue has a waiter whose process died a while ago.
			testlock.Must(t, admin.ZAdd(bg, "lockline:f:{x}:q", redis.Z{Score: 1, Member: "dead:1"}).Err())
			testlock.Must(t, admin.ConfigResetStat(bg).Err())
			if err := c.do(testlock.Bounded(t), server.Client(t, asLockline), admin); err != nil {
				t.Error(err)
			}
			if refused := denied(t, admin); refused != nil {
				t.Errorf("refused: %q", refused)
			}
			for _, rule := range c.more {
				if name, isCommand := strings.CutPrefix(rule, "+"); isCommand {
					command, _, _ := strings.Cut(name, "|") // as Redis 6.2 counts
					if !called(admin, name) && !called(admin, command) {
						t.Errorf("%s is of no use", rule)
					}
				}
			}
			for _, rule := range c.more { // without a rule for keys or channels, the server must refuse
				if !strings.ContainsAny(rule[:1], "~&") {
					continue
				}
				setUser(t, admin, slices.DeleteFunc(slices.Concat(c.rights, c.more), func(r string) bool {
					return r == rule
				}))
				ctx, cancel := context.WithCancel(testlock.Bounded(t))
				ended := make(chan error, 1)
				go func() { ended <- c.do(ctx, server.Client(t, asLockline), admin) }()
				testlock.Eventually(t, "something is refused without "+rule, func() bool {
					return denied(t, admin) != nil
				})
				cancel()
				<-ended
			}
		})
	}
}

// Otherwise the lock would be taken forever by a caller whose Lock has returned an error.
func TestALockWithoutTheRightToExpireItsKeyLeavesNoKey(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	rules := slices.DeleteFunc(testlock.DocumentedRights(t).Server, func(r string) bool {
		return r == "+pexpire"
	})
	setUser(t, admin, rules)
	s := testlock.NewSession(t, server.Client(t, asLockline))
	for name, newMutex := range testlock.Kinds {
		_, _, err := newMutex(s, "x").TryLock(testlock.Bounded(t))
		if err == nil || !strings.Contains(err.Error(), "lockline doctor, run as that user") {
			t.Errorf("%s: %v", name, err)
		}
		for _, key := range admin.Keys(bg, "*").Val() {
			if admin.PTTL(bg, key).Val() < 0 {
				t.Errorf("%s: %s has no expiry: %v", name, key, admin.HGetAll(bg, key).Val())
			}
		}
	}
}

func TestTheDocumentedRightsForReplicas(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.StartReplica(t)
	admin := server.Client(t)
	rules := testlock.DocumentedRights(t)
	try := func() error {
		hold := testlock.Take(t, rlock.New(testlock.NewSession(t, server.Client(t, asLockline)), "x"))
		defer hold.Unlock(bg)
		return hold.WaitReplicas(testlock.Bounded(t), 1)
	}
	setUser(t, admin, slices.Concat(rules.Server, rules.Replicas))
	if err := try(); err != nil {
		t.Error(err)
	}
	if refused := denied(t, admin); refused != nil {
		t.Errorf("refused: %q", refused)
	}
	setUser(t, admin, rules.Server)
	if err := try(); err == nil || !slices.Equal(rules.Replicas, []string{"+wait"}) ||
		!slices.Equal(denied(t, admin), []string{"wait"}) {
		t.Errorf("without %s: refused %q, %v", rules.Replicas, denied(t, admin), err)
	}
}

// The texts of refusals differ between versions of Redis, and between commands, keys and channels.
func TestARefusalForLackOfARightPointsToTheRules(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	for _, c := range []struct{ without, more, reason, object string }{
		{"~lockline:*", "", "key", "lockline:r:{x}"},
		{"+evalsha", "", "command", "evalsha"},
		{"+hset", "", "command", "hset"},                       // in a script
		{"+hset", "(+hset ~other:*)", "key", "lockline:r:{x}"}, // in a script
		{"&lockline:*", "", "channel", "lockline:s:"},
		{"+subscribe", "", "command", "subscribe"},
	} {
		rules := slices.DeleteFunc(testlock.DocumentedRights(t).Server, func(r string) bool {
			return r == c.without
		})
		if c.more != "" {
			if err := admin.Do(bg, "ACL", "SETUSER", "tried", c.more).Err(); err != nil {
				t.Logf("a server without selectors: %v", err)
				continue
			}
			rules = append(rules, c.more)
		}
		setUser(t, admin, rules)
		log := new(testlock.Log)
		client := server.Client(t, asLockline)
		_, hold, err := rlock.New(testlock.NewSession(t, client), "x").TryLock(testlock.Bounded(t))
		if hold != nil { // a waiter lacks a right, but can wait without it
			s := testlock.NewSession(t, client, rlock.WithLogger(log.Logger()))
			ctx, cancel := context.WithCancel(testlock.Bounded(t))
			ended := make(chan error, 1)
			go func() { ended <- testlock.Cycle(ctx, rlock.New(s, "x")) }()
			testlock.Eventually(t, "the log points to the rules without "+c.without, func() bool {
				return log.Count("see the ACL rules in docs/operations.md") > 0
			})
			cancel()
			<-ended
			testlock.Unlock(t, hold)
		} else if !strings.Contains(err.Error(), "docs/operations.md#acl-rules") {
			t.Errorf("without %s %s: %v", c.without, c.more, err)
		}
		entries, err := admin.ACLLog(bg, 100).Result()
		testlock.Must(t, err)
		if !slices.ContainsFunc(entries, func(e *redis.ACLLogEntry) bool {
			return e.Reason == c.reason && strings.HasPrefix(e.Object, c.object)
		}) {
			t.Errorf("without %s %s: refused was %q", c.without, c.more, denied(t, admin))
		}
	}
}
