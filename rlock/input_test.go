package rlock_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

func TestAMutexThatIsNoneIsRefused(t *testing.T) {
	for m, named := range map[*rlock.Mutex]string{
		rlock.New(nil, "x"):                `lock "x": the session is nil`,
		rlock.New(new(rlock.Session), "y"): `lock "y": the session is nil or a zero value`,
		new(rlock.Mutex):                   "the lock, semaphore or election is nil or a zero value",
		nil:                                "is nil or a zero value; make one with New",
	} {
		_ = m.Name()
		ctx, hold, locked := m.Lock(bg)
		if ctx != bg || hold != nil {
			t.Error("Lock returned another context, or a hold")
		}
		_, _, tried := m.TryLock(bg)
		done := m.Do(bg, func(context.Context) error { t.Error("it ran"); return nil })
		_, inspected := m.Inspect(bg)
		_, forced := m.ForceUnlock(bg)
		_, token := m.ForceUnlockToken(bg, 1)
		for _, err := range []error{locked, tried, done, inspected, forced, token} {
			if err == nil || !strings.Contains(err.Error(), named) {
				t.Errorf("%v", err)
			}
			testlock.OnePrefix(t, "no Mutex", err)
		}
	}
}

func TestATimeThatLastsForDecadesIsRefusedWithTheOptionsName(t *testing.T) {
	const long = math.MaxInt64
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		said := map[string]error{}
		for name, option := range map[string]rlock.SessionOption{
			"WithWatchdogTimeout": rlock.WithWatchdogTimeout(long),
			"WithWaiterTimeout":   rlock.WithWaiterTimeout(long),
			"WithHandover":        rlock.WithHandover(long), "WithLinger": rlock.WithLinger(long),
		} {
			_, said[name] = rlock.NewSession(w.Client, option)
		}
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		_, _, said["WithLease"] = m.TryLock(bg, rlock.WithLease(long))
		_, _, said["HoldAtLeast"] = m.TryLock(bg, rlock.HoldAtLeast(long))
		for d, text := range map[time.Duration]string{0: "0s", -1: "-1ns"} {
			_, _, err := m.TryLock(bg, rlock.WithLease(d))
			if err == nil || !strings.Contains(err.Error(), ": "+text+" is shorter") {
				t.Errorf("WithLease(%d): %v", d, err)
			}
		}
		hold := testlock.Take(t, m)
		said["Extend"] = hold.Extend(bg, long)
		testlock.Unlock(t, hold)
		for name, err := range said {
			if err == nil || !strings.Contains(err.Error(), name+": ") ||
				!strings.Contains(err.Error(), "ten years") {
				t.Errorf("%s: %v", name, err)
			}
		}
		testlock.Unlock(t, testlock.Take(t, m, rlock.WaitAtMost(long))) // a wait may be longer than a lease
	})
}

func TestATimeWithoutAUnitIsRefusedWithTheOptionsName(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		for want, option := range map[string]rlock.SessionOption{
			"WithWatchdogTimeout: 30ns is shorter than 10ms": rlock.WithWatchdogTimeout(30),
			"WithWaiterTimeout: 10ns is shorter than 10ms":   rlock.WithWaiterTimeout(10),
			"WithHandover: 5ns is shorter than 100µs":        rlock.WithHandover(5),
			"WithLinger: 1ns is shorter than 1ms":            rlock.WithLinger(1),
		} {
			_, err := rlock.NewSession(w.Client, option)
			if err == nil || !strings.HasPrefix(err.Error(), "lockline: "+want+": is the unit missing") {
				t.Errorf("%s: %v", want, err)
			}
		}
		for _, off := range []rlock.SessionOption{
			rlock.WithHandover(0), rlock.WithHandover(-1), rlock.WithLinger(0), rlock.WithLinger(-1),
		} {
			testlock.Works(t, rlock.New(testlock.NewSession(t, w.Client, off), "x"))
		}
		hold := testlock.Take(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		const want = "Extend: 30ns is shorter than 10ms: is the unit missing, as in 30*time.Second?"
		if err := hold.Extend(bg, 30); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Extend: %v", err)
		}
		testlock.Unlock(t, hold)
	})
}

func TestANilSessionIsRefused(t *testing.T) {
	var s *rlock.Session
	for _, err := range []error{s.Close(), s.Shutdown(bg)} {
		if err == nil || !strings.Contains(err.Error(), "the Session is nil") {
			t.Errorf("%v", err)
		}
	}
}

func TestAMethodOfANilHoldIsSafe(t *testing.T) {
	for _, hold := range []*rlock.Hold{nil, new(rlock.Hold)} {
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrNotHeld)
		testlock.WantError(t, "Extend", hold.Extend(bg, time.Second), rlock.ErrNotHeld)
		if hold.Token() != 0 || !hold.Deadline().IsZero() || !errors.Is(hold.Err(), rlock.ErrNotHeld) ||
			hold.Name() != "" {
			t.Error("a nil Hold seems held")
		}
	}
}

func TestBadSessionsAreRefusedWithAReason(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = rdb.Close() }()
	var none *redis.Client
	type unfit struct {
		client  rlock.Client
		options []rlock.SessionOption
		reason  string
	}
	cases := map[string]unfit{
		"a nil client":        {nil, nil, "nil"},
		"a nil *redis.Client": {none, nil, "nil"},
		"a Ring":              {ring, nil, "another server"},
		"an empty prefix":     {rdb, []rlock.SessionOption{rlock.WithPrefix("")}, `""`},
		"an open brace":       {rdb, []rlock.SessionOption{rlock.WithPrefix("a{b")}, `"a{b"`},
		"an empty tag":        {rdb, []rlock.SessionOption{rlock.WithPrefix("a{}")}, `"a{}"`},
		"a kind in the prefix": {rdb, []rlock.SessionOption{rlock.WithPrefix("app:r:{tenant}")},
			"another prefix"},
		"Redisson's prefix": {rdb, []rlock.SessionOption{rlock.WithPrefix("redisson_lock_token")},
			"Redisson"},
		"a long prefix": {rdb, []rlock.SessionOption{rlock.WithPrefix(strings.Repeat("p", 600))},
			"600"},
		"no watchdog timeout": {rdb, []rlock.SessionOption{rlock.WithWatchdogTimeout(0)}, "0s"},
		"a watchdog of 1ms": {rdb, []rlock.SessionOption{rlock.WithWatchdogTimeout(time.Millisecond)},
			"1ms"},
		"a label that isn't": {rdb, []rlock.SessionOption{rlock.WithLabel("\xff")}, "UTF-8"},
		"a label that is a book": {rdb, []rlock.SessionOption{rlock.WithLabel(strings.Repeat("l", 600))},
			"512"},
	}
	// Versions of go-redis before 9.22 have no AutoPipeline.
	if method := reflect.ValueOf(rdb).MethodByName("AutoPipeline"); method.IsValid() {
		ap := method.Call(nil)[0].Interface()
		defer func() { _ = ap.(io.Closer).Close() }()
		cases["an AutoPipeliner"] = unfit{ap.(rlock.Client), nil, "batch"}
	}
	for what, c := range cases {
		s, err := rlock.NewSession(c.client, c.options...)
		if err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v", what, err)
		}
		testlock.OnePrefix(t, what, err)
		if s != nil {
			t.Errorf("%s: a session was returned", what)
		}
	}
}

// names are names that have broken the keys of other libraries.
var names = []string{
	"x", "a b", "a\nb", "a\x00b", "\xff\xfe", "ü", "名前", "{", "}", "{}", "}{", "{a}", "a{b}c", "a}b", "a{b",
	"}x", `\x`, `\}x`, `\\`,
	"{}{a}", "a:b", "a}:t", "}:t", "*", "[x]", strings.Repeat("n", 512), strings.Repeat("}", 512),
}

// Proves: names
func TestNoTwoPrefixesShareALock(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Client
		hold := func(what string, m rlock.Locker) {
			_, hold, err := m.TryLock(bg)
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			t.Cleanup(func() { _ = hold.Unlock(bg) })
		}
		hold("what looks like another prefix",
			rlock.New(testlock.NewSession(t, rdb, rlock.WithPrefix("app")), "tenant}:r:{y"))
		for _, prefix := range []string{"{app}", "app:{tenant}", "app:r", "app:r:"} {
			hold(prefix, rlock.New(testlock.NewSession(t, rdb, rlock.WithPrefix(prefix)), "y"))
		}
		s := testlock.NewSession(t, rdb)
		for _, name := range []string{
			"x", "{x}", "orders:{x}", "app:r:x", "r:{x}", "my:lockline_lock_memory:{x}",
		} {
			hold(name, redisson.New(s, name))
		}
		for _, name := range []string{"lockline_lock_memory:{x}", "lockline_lock_memory::{x}",
			"redisson_lock_token:{x}", "redisson_lock_token:x",
			"lockline:r:{x}", "lockline:r:{x}:t", "app:f:{x}:q", "app:q:{x}"} {
			m := redisson.New(s, name)
			_, _, err := m.Lock(bg, rlock.WaitAtMost(0))
			_, _, try := m.TryLock(bg)
			do := m.Do(bg, func(context.Context) error { return nil }, rlock.WaitAtMost(0))
			_, look := m.Inspect(bg)
			_, force := m.ForceUnlock(bg)
			_, forceToken := m.ForceUnlockToken(bg, 1)
			for _, err := range []error{err, try, do, look, force, forceToken} {
				if err == nil || !strings.Contains(err.Error(), "redisson: ") ||
					!strings.Contains(err.Error(), `"`+name+`"`) {
					t.Errorf("%q: %v", name, err)
				}
			}
		}
	})
}

func FuzzNames(f *testing.F) {
	for _, name := range names {
		f.Add("p", name, "p", name+"}")
	}
	f.Add("app", "tenant}:r:{y", "app:r:{tenant}", "y")
	f.Add("app:{b}", "x", "app", "b}:f:{x")
	// The prefix "" stands for package redisson.
	for _, name := range []string{"lockline_lock_memory:{x}", "redisson_lock_token:{x}", "r:{x}"} {
		f.Add("", "x", "", name)
	}
	f.Add("lockline", "x", "", "lockline:r:{x}:t")
	rdb := testlock.NewWire(f).Client
	f.Fuzz(func(t *testing.T, p, a, q, b string) {
		// Package protocol tests which of these names are refused.
		refused := func(prefix, name string) bool {
			return prefix == "" && strings.ContainsAny(name, "{}_")
		}
		process := func(prefix string) (*rlock.Session, map[string]testlock.AnyMaker) {
			kinds := testlock.AnyKinds
			if prefix == "" {
				prefix = "lockline"
				kinds = map[string]testlock.AnyMaker{"redisson": testlock.Any(redisson.New)}
			}
			s, err := rlock.NewSession(rdb, rlock.WithPrefix(prefix), rlock.WithLogger(testlock.Quiet))
			if err != nil {
				t.Skip()
			}
			return s, kinds
		}
		one, kinds := process(p)
		defer func() { _ = one.Close() }()
		other, otherKinds := one, kinds
		if q != p {
			other, otherKinds = process(q)
			defer func() { _ = other.Close() }()
		}
		for mine, newMutex := range kinds {
			_, ha, err := newMutex(one, a).TryLock(bg)
			if (err != nil) != (a == "" || len(a) > 512) && !refused(p, a) {
				t.Fatalf("%s %q %q: %v", mine, p, a, err)
			}
			for theirs, newMutex := range otherKinds {
				_, hb, err2 := newMutex(other, b).TryLock(bg)
				same := p == q && a == b && mine == theirs
				if b != "" && len(b) <= 512 && !same && err2 != nil &&
					(errors.Is(err2, rlock.ErrLocked) || !refused(q, b)) {
					t.Errorf("%s %q %q and %s %q %q are in each other's way: %v",
						mine, p, a, theirs, q, b, err2)
				}
				if same && err == nil && err2 == nil {
					t.Errorf("%s %q %q was taken twice", mine, p, a)
				}
				_ = hb.Unlock(bg)
			}
			_ = ha.Unlock(bg)
		}
	})
}

// A nil context is a mistake, but locks must not stay taken because of it, and the process must not crash.
func TestShutdownWithoutAContextGivesBackAsCloseDoes(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		hold := testlock.Take(t, rlock.New(s, "x"))
		var none context.Context
		testlock.Must(t, s.Shutdown(none))
		testlock.WantError(t, "the hold", hold.Err(), rlock.ErrClosed)
		testlock.Works(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
	})
}

// nowhere is an observer for which a program may pass a nil pointer by mistake.
type nowhere struct{ events []rlock.Event }

func (n *nowhere) Observe(_ context.Context, e rlock.Event) { n.events = append(n.events, e) }

func TestAnObserverThatIsANilPointerIsNone(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var log bytes.Buffer
		s, err := rlock.NewSession(w.Client, rlock.WithObserver((*nowhere)(nil)),
			rlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		testlock.Must(t, err)
		testlock.Works(t, rlock.New(s, "x"))
		testlock.Must(t, s.Close())
		if log.Len() > 0 {
			t.Errorf("logged: %s", &log)
		}
	})
}

func TestDoRefusesANilFunctionAndANilLockerBeforeItTakesALock(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		err := m.Do(bg, nil)
		if err == nil || !strings.Contains(err.Error(), `the function is nil, for the lock "x"`) {
			t.Errorf("a nil function: %v", err)
		}
		work := func(context.Context) error { t.Error("it ran"); return nil }
		if err := rlock.Do(bg, nil, work); err == nil || !strings.Contains(err.Error(), "Locker is nil") {
			t.Errorf("a nil Locker: %v", err)
		}
		if n := w.Net.Count("EVAL", "EVALSHA"); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}
