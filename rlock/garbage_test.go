package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

// odd are values that Lockline never writes, in fields that have numbers. oddReal are further values, which
// the Lua of a real server converts in its own way.
var (
	odd     = []string{"", "zzz", "inf", "9007199254740993", "5e15"}
	oddReal = []string{"zzz", "-5", "1.5", "1e400", "0x10", "5e15", "1\n2\x00%s,=", "9223372036854775807"}
)

// A place is a key or a field into which somebody writes such a value. If idle is true, this happens while
// nobody holds the lock, otherwise while it is held.
type place struct {
	field string // "" if the key has no fields
	key   string // its name, or its suffix to the lock's key
	alike string // another field that gets the same value, or ""
	idle  bool
}

func (p place) String() string {
	what := "held"
	if p.idle {
		what = "idle"
	}
	return fmt.Sprintf("%s,key=%s,field=%s%s", what, p.key, p.field, p.alike)
}

func placesOf(kind string) []place {
	if kind == "redisson" {
		return []place{
			{field: "t"}, {field: "s"}, {field: "another:1"},
			{key: ":t", field: "t"}, {key: ":t", field: "r"}, {key: ":t", field: "l"},
			{key: ":t", field: "gone:1"}, {key: ":t", field: "t", alike: "r"},
			{key: ":t", field: "t", idle: true}, {key: ":t", field: "t", alike: "r", idle: true},
			{key: ":t", field: "gone:1", idle: true},
			{key: "counter"}, {key: "counter", idle: true},
		}
	}
	at := []place{{field: "token", alike: "released"}, {field: "token", alike: "released", idle: true},
		{key: ":w", field: "another:1"}}
	fields := []string{"owner", "ends", "token", "floor", "count", "change", "released", "lost",
		"releaser", "ticket", "queued", "lives", "refused", "lingers", "gone:1"}
	if kind == "writer" {
		fields = append(fields, "permits", "shared", "limit", "limiter", "lingerers", "held another:1")
	}
	for _, field := range fields {
		at = append(at, place{field: field})
		if field != "owner" { // a value in this field makes the lock taken
			at = append(at, place{field: field, idle: true})
		}
	}
	return at
}

// eachPlace runs a test for each place and each kind. Its function of makes a vandal for the lock with this
// name.
func eachPlace(
	t *testing.T, test func(t *testing.T, at place,
		of func(t *testing.T, name string, admin *redis.Client) *vandal),
) {
	for kind, newMutex := range map[string]testlock.AnyMaker{
		"reentrant": testlock.Any(rlock.New), "fair": testlock.Any(fairlock.New),
		"redisson": testlock.Any(redisson.New), "writer": testlock.Any(rwlock.New),
	} {
		for _, at := range placesOf(kind) {
			t.Run(fmt.Sprintf("%s/%s", kind, at), func(t *testing.T) {
				test(t, at, func(t *testing.T, name string, admin *redis.Client) *vandal {
					options := []rlock.SessionOption{rlock.WithWatchdogTimeout(5 * time.Second),
						rlock.WithWaiterTimeout(5 * time.Second)}
					one, two := testlock.NewSession(t, admin, options...),
						testlock.NewSession(t, admin, options...)
					v := &vandal{t: t, name: name, rdb: admin, one: newMutex(one, name),
						two: newMutex(two, name)}
					v.place(kind, at)
					return v
				})
			})
		}
	}
}

// Odd values in the keys of a lock must not cause a second holder, a token that is too low, or requests all
// the time. Every call returns. If it returns an error, the error names the key. After this key is deleted,
// the lock works again. Proves: values
func TestValuesThatLocklineDidNotWriteAreRefusedOrRepaired(t *testing.T) {
	eachPlace(t, func(t *testing.T, at place, of func(*testing.T, string, *redis.Client) *vandal) {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			w.Net.SetDelay(10 * time.Microsecond) // so that the clock moves, and tokens with it
			for i, value := range odd {
				of(t, fmt.Sprintf("%d %q", i, value), w.Client).suffer(at, value)
			}
		})
	})
}

// A vandal writes odd values into the keys of one lock, which two sessions use.
type vandal struct {
	t        *testing.T
	name     string
	key      string // the key that gets the value
	rdb      *redis.Client
	one, two testlock.Mutex
	last     int64 // the highest token of a hold
}

func (v *vandal) suffer(at place, value string) {
	if at.idle {
		v.whileIdle(at, value)
	} else {
		v.whileHeld(at, value)
	}
	v.recovers()
}

func (v *vandal) place(kind string, at place) {
	letter := map[string]string{"reentrant": "r", "fair": "f", "writer": "w"}[kind]
	switch lock := testlock.Prefix(v.rdb) + ":" + letter + ":{" + v.name + "}"; {
	case kind != "redisson":
		v.key = lock + at.key
	case at.key == "":
		v.key = v.name
	case at.key == "counter":
		v.key = "redisson_lock_token:{" + v.name + "}"
	default:
		v.key = "lockline_lock_memory:{" + v.name + "}"
	}
}

func (v *vandal) write(at place, value string) {
	v.t.Helper()
	if at.field == "" {
		testlock.Must(v.t, v.rdb.Set(bg, v.key, value, 0).Err())
		return
	}
	fields := []any{at.field, value}
	if at.alike != "" {
		fields = append(fields, at.alike, value)
	}
	testlock.Must(v.t, v.rdb.HSet(bg, v.key, fields...).Err())
}

// got checks the result of a Lock or TryLock, and records its token.
func (v *vandal) got(what string, hold *rlock.Hold, err error) {
	v.t.Helper()
	switch {
	case err == nil && hold.Token() <= v.last:
		v.t.Errorf("%s: token %d after %d", what, hold.Token(), v.last)
	case err == nil:
		v.last = hold.Token()
	default:
		v.named(what, err)
	}
}

// named fails the test unless err is nil, an ordinary error of a lock, or an error that names the key.
func (v *vandal) named(what string, err error) {
	v.t.Helper()
	if err != nil && !errors.Is(err, rlock.ErrLocked) && !errors.Is(err, rlock.ErrLost) &&
		!(strings.Contains(err.Error(), fmt.Sprintf("%q", v.key)) &&
			strings.Contains(err.Error(), "delete that key")) {
		v.t.Errorf("%s: %v", what, err)
	}
}

func (v *vandal) inspects() {
	v.t.Helper()
	if st, err := v.two.Inspect(testlock.Bounded(v.t)); err != nil || st.Token < 0 || st.Token > 1<<53 {
		v.t.Errorf("Inspect: %+v, %v", st, err)
	}
}

// patient is the lease of holds that must not be lost, although a busy machine may renew them too late.
var patient = rlock.WithLease(testlock.Patience)

func (v *vandal) whileIdle(at place, value string) {
	hold := testlock.Take(v.t, v.one, patient)
	v.last = hold.Token()
	testlock.Unlock(v.t, hold)
	v.write(at, value)
	v.inspects()
	_, hold, err := v.two.TryLock(testlock.Bounded(v.t), patient)
	v.got("TryLock", hold, err)
	if err != nil {
		if errors.Is(err, rlock.ErrLocked) {
			v.t.Errorf("TryLock of a free lock: %v", err)
		}
		if free, _ := v.one.Inspect(testlock.Bounded(v.t)); free.Held {
			v.t.Errorf("something was written before the error: %+v", free)
		}
		return
	}
	if _, _, err := v.one.TryLock(testlock.Bounded(v.t)); err == nil {
		v.t.Error("TryLock of a held lock")
	} else {
		v.named("TryLock of a held lock", err)
	}
	v.named("Unlock", hold.Unlock(testlock.Bounded(v.t)))
}

func (v *vandal) whileHeld(at place, value string) {
	t := v.t
	first := testlock.Take(t, v.one)
	v.last = first.Token()
	ends := make(chan struct{})
	var second *rlock.Hold
	var early bool
	var err error
	began := make(chan struct{})
	go func() {
		defer close(ends)
		close(began)
		_, second, err = v.two.Lock(testlock.Bounded(t))
		early = err == nil && first.Err() == nil
	}()
	<-began
	v.write(at, value)
	v.inspects()
	if _, _, err := v.two.TryLock(testlock.Bounded(t)); err == nil {
		t.Error("TryLock of a held lock")
	} else {
		v.named("TryLock", err)
	}
	extended := first.Extend(testlock.Bounded(t), time.Minute) // does the same as a renewal
	v.named("Extend", extended)
	if (at.field == "s" || at.field == "change") && extended != nil {
		t.Errorf("the hold ended, though only its count was changed: %v", extended)
	}
	if at.key == "" && (at.field == "t" || at.field == "token") { // may be a grant to a fair waiter
		select {
		case <-ends:
		case <-time.After(150 * time.Millisecond): // longer than the time between heartbeats
		}
	}
	v.inspects()
	v.named("Unlock", first.Unlock(testlock.Bounded(t)))
	testlock.Receive(t, "the end of a wait", ends)
	if early {
		t.Error("two hold it")
	}
	v.got("Lock", second, err)
	if err == nil {
		v.named("Unlock", second.Unlock(testlock.Bounded(t)))
	}
}

// recovers frees the lock, deletes the key, as the error says, and checks that the lock works again.
func (v *vandal) recovers() {
	t := v.t
	if _, hold, err := v.one.TryLock(testlock.Bounded(t)); err == nil {
		v.got("TryLock", hold, nil)
		v.named("Unlock", hold.Unlock(testlock.Bounded(t)))
	}
	_, err := v.two.ForceUnlock(testlock.Bounded(t))
	v.named("ForceUnlock", err)
	// Time may be real here, and the tokens of a block may be a millisecond ahead of the server's clock.
	time.Sleep(2 * time.Millisecond)
	testlock.Must(t, v.rdb.Del(bg, v.key).Err())
	_, hold := testlock.Lock(t, v.two, testlock.Bounded(t), patient)
	v.got("Lock", hold, nil)
	if _, _, err := v.one.TryLock(testlock.Bounded(t)); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("TryLock of a held lock: %v", err)
	}
	testlock.Unlock(t, hold)
}

// Waiters of a lock with a very long time to live must not send requests all the time.
func TestALockThatLivesForAgesIsWaitedForWithoutAskingAllTheTime(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		_, hold := testlock.Lock(t, newMutex(testlock.NewSession(t, beside(t, w)), "x"), bg)
		lock := w.Keys()[0]
		// The in-memory server cannot have a time to live that is too long for a time.Duration.
		w.SetTTL(lock, 1e12*time.Millisecond/1000)
		m := newMutex(testlock.NewSession(t, w.Client), "x")
		_, _, _ = m.TryLock(bg)
		w.Net.Reset()
		_, _, err := m.Lock(bg, rlock.WaitAtMost(time.Second))
		testlock.WantError(t, "Lock", err, rlock.ErrLocked)
		if n := w.Net.Count("EVAL", "EVALSHA"); n > 10 {
			t.Errorf("%d requests in a second: %s", n, sequence(w.Net))
		}
		testlock.Unlock(t, hold)
	})
}

// A hash of another program, or of an older version of Lockline, must not count as a free lock.
func TestAHashThatLocklineDidNotWriteIsAnErrorThatNamesItsKey(t *testing.T) {
	for what, fields := range map[string][]string{
		"another program's": {"foo", "bar"},
		"an older version's": {"abcdefghijklmnopqrstuv:1", "1", "t", "1795000000000000", "s", "0",
			"d", "1@host "},
	} {
		t.Run(what, func(t *testing.T) {
			everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
				m := newMutex(testlock.NewSession(t, w.Client), "x")
				testlock.Works(t, m)
				key := w.Keys()[0]
				w.Del(key)
				w.HSet(key, fields...)
				for name, acquire := range map[string]func() error{
					"Lock":    func() error { return testlock.Cycle(testlock.Bounded(t), m) },
					"TryLock": func() error { _, _, err := m.TryLock(bg); return err },
				} {
					err := acquire()
					says := fmt.Sprintf("the key %q is not a lock ", key)
					if err == nil || !strings.Contains(err.Error(), says) ||
						!strings.Contains(err.Error(), `no field "lives"; an older version of Lockline`) {
						t.Errorf("%s: %v", name, err)
					}
				}
				if _, err := m.ForceUnlock(bg); err == nil {
					t.Error("ForceUnlock frees what is no lock")
				}
				testlock.Must(t, w.Client.Del(bg, key).Err())
				testlock.Works(t, m)
			})
		})
	}
}

// The hash has the end of the lease, so the lease also ends if the key does not expire.
func TestALeaseEndsThoughItsKeyWasPersistedByHand(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		gone := testlock.NewSession(t, beside(t, w))
		testlock.Lock(t, newMutex(gone, "x"), bg, rlock.WithLease(time.Minute))
		testlock.Must(t, w.Client.Persist(bg, w.Keys()[0]).Err())
		start := time.Now()
		_, hold := testlock.Lock(t, newMutex(testlock.NewSession(t, w.Client), "x"), bg,
			rlock.WaitAtMost(2*time.Minute))
		testlock.Unlock(t, hold)
		if took := time.Since(start); took > 61*time.Second {
			t.Errorf("the next one waited for %v", took)
		}
	})
}

func TestTheErrorAboutAnOddValueIsFinal(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client), "x")
		testlock.Works(t, m)
		memory := w.Keys()[0]
		w.HSet(memory, "token", "zzz")
		type acquire func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error)
		for what, acquire := range map[string]acquire{"Lock": m.Lock, "TryLock": m.TryLock} {
			w.Net.Reset()
			_, _, err := acquire(bg)
			says := fmt.Sprintf(`the key %q has "zzz" in its field "token"`, memory)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", what, err)
			}
			if n := w.Net.Count("EVAL", "EVALSHA"); n != 1 {
				t.Errorf("%s: %d requests", what, n)
			}
		}
		if w.HGet(memory, "owner") != "" {
			t.Error("something was written before the error")
		}
	})
}
