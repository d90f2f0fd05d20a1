package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// odd are values that Lockline never wrote where it keeps numbers.
var odd = []string{"", "zzz", "-5", "1.5", "inf", "1e400", "0x10", "1\n2\x00%s,=", "9007199254740993", "9223372036854775807"}

// A place is where somebody writes such a value, while the lock is held, or while nobody holds it.
type place struct {
	field string // "": a key without fields
	key   string // by its ending behind the lock's key; or its whole name
	alike string // a field that gets the same value
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
	at := []place{
		{field: "t"}, {field: "s"}, {field: "another:1"},
		{key: ":t", field: "t"}, {key: ":t", field: "r"}, {key: ":t", field: "l"}, {key: ":t", field: "gone:1"}, {key: ":t", field: "t", alike: "r"},
		{key: ":t", field: "t", idle: true}, {key: ":t", field: "t", alike: "r", idle: true}, {key: ":t", field: "gone:1", idle: true},
	}
	switch kind {
	case "fair":
		at = append(at, place{key: ":t", field: "q"}, place{key: ":d", field: "another:1"})
	case "redisson":
		at = append(at, place{key: "counter"}, place{key: "counter", idle: true})
	}
	return at
}

// What nobody of ours wrote into a lock's keys makes no second holder, no token that is not above those before, and
// nobody ask all the time. Everything ends, and where it is an error, that names the key: when that is deleted, all is well.
func TestValuesThatLocklineDidNotWriteAreRefusedOrRepaired(t *testing.T) {
	type world struct {
		addr  string
		admin *redis.Client
		spoil *redis.Client // may write the keys, and nothing else; on the embedded server it may do anything
	}
	worlds := map[string]world{}
	mini := testredis.Embedded(t)
	rdb := testlock.Client(t, mini.Addr())
	worlds["embedded"] = world{mini.Addr(), rdb, rdb}
	if _, ok := testredis.Binary(); ok {
		server := testredis.Start(t)
		worlds["real"] = world{server.Addr, server.Client(t), testlock.User(t, server, "scribe", "~*", "+@write")}
	}
	quorum := func(s *rlock.Session, name string, options ...rlock.Option) *rlock.Mutex { // whose server may be busy
		q, err := multilock.NewQuorum([]*rlock.Session{s}, multilock.WithServerTimeout(testlock.Patience/3))
		testlock.Must(t, err)
		return q.New(name, options...)
	}
	var number atomic.Int64
	for where, w := range worlds {
		proxy := faultproxy.New(t, w.addr)
		client := proxy.Client(t)
		for kind, newMutex := range map[string]testlock.Maker{"reentrant": rlock.New, "fair": fairlock.New, "redlock": quorum, "redisson": rlock.New} {
			var options []rlock.SessionOption
			if kind == "redisson" {
				options = append(options, rlock.RedissonKeys())
			}
			lease := 1500 * time.Millisecond
			if kind == "redlock" {
				lease = testlock.Patience
			}
			options = append(options, rlock.WithWatchdogTimeout(lease), rlock.WithLiveness(300*time.Millisecond))
			for _, at := range placesOf(kind) {
				for _, value := range odd {
					name := fmt.Sprint("n", number.Add(1))
					t.Run(fmt.Sprintf("%s/%s/%s/%q", where, kind, at, value), func(t *testing.T) {
						t.Parallel()
						// Sessions of its own: a RedLock's tokens follow those that its session saw of any lock.
						one, two := testlock.NewSession(t, client, options...), testlock.NewSession(t, client, options...)
						v := &vandal{t: t, name: name, admin: w.admin, spoil: w.spoil, one: newMutex(one, name), two: newMutex(two, name)}
						v.place(kind, at)
						if at.idle {
							v.whileIdle(at, value)
						} else {
							v.whileHeld(at, value)
						}
						v.recovers()
					})
				}
			}
		}
	}
}

// vandal writes into the keys of one lock, which two sessions use.
type vandal struct {
	t            *testing.T
	name         string
	key          string // that is written to
	admin, spoil *redis.Client
	one, two     *rlock.Mutex
	last         int64 // the highest token of a hold
}

func (v *vandal) place(kind string, at place) {
	letter := map[string]string{"reentrant": "r", "fair": "f", "redlock": "q"}[kind]
	switch lock := "lockline:" + letter + ":{" + v.name + "}"; {
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
		testlock.Must(v.t, v.spoil.Set(bg, v.key, value, 0).Err())
		return
	}
	fields := []any{at.field, value}
	if at.alike != "" {
		fields = append(fields, at.alike, value)
	}
	testlock.Must(v.t, v.spoil.HSet(bg, v.key, fields...).Err())
}

// got takes in the outcome of an acquisition.
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

// named: the error tells what an error of a lock is, or names the key.
func (v *vandal) named(what string, err error) {
	v.t.Helper()
	if err != nil && !errors.Is(err, rlock.ErrLocked) && !errors.Is(err, rlock.ErrLost) && !(strings.Contains(err.Error(), fmt.Sprintf("%q", v.key)) && strings.Contains(err.Error(), "delete that key")) {
		v.t.Errorf("%s: %v", what, err)
	}
}

func (v *vandal) inspects() {
	v.t.Helper()
	if st, err := v.two.Inspect(testlock.Bounded(v.t)); err != nil || st.Token < 0 || st.Token > 1<<53 {
		v.t.Errorf("Inspect: %+v, %v", st, err)
	}
}

// patient is for holds that must live, where a busy machine may renew too late.
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
	if _, _, err := v.one.TryLock(testlock.Bounded(v.t)); !errors.Is(err, rlock.ErrLocked) {
		v.t.Errorf("TryLock of a held lock: %v", err)
	}
	testlock.Unlock(v.t, hold)
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
	extended := first.Extend(testlock.Bounded(t), time.Minute) // what a renewal does
	v.named("Extend", extended)
	if at.field == "s" && extended != nil {
		t.Errorf("the hold ended, though only its count was changed: %v", extended)
	}
	if at.key == "" && at.field == "t" { // a fair waiter could take it for a grant
		select {
		case <-ends:
		case <-time.After(150 * time.Millisecond): // a heartbeat's time
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

// recovers: when nobody holds the lock and the key is deleted, as the error says, all is well.
func (v *vandal) recovers() {
	t := v.t
	if _, hold, err := v.one.TryLock(testlock.Bounded(t)); err == nil {
		v.got("TryLock", hold, nil)
		v.named("Unlock", hold.Unlock(testlock.Bounded(t)))
	}
	_, err := v.two.ForceUnlock(testlock.Bounded(t))
	v.named("ForceUnlock", err)
	testlock.Must(t, v.admin.Del(bg, v.key).Err())
	if strings.HasPrefix(v.key, "lockline:q:") {
		v.last = 0 // a RedLock's tokens may be some milliseconds ahead of the clock, which now they follow
	}
	_, hold := testlock.Lock(t, v.two, testlock.Bounded(t), patient)
	v.got("Lock", hold, nil)
	if _, _, err := v.one.TryLock(testlock.Bounded(t)); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("TryLock of a held lock: %v", err)
	}
	testlock.Unlock(t, hold)
}

// Nobody asks all the time for a lock whose time to live is longer than a time.Duration can tell.
func TestALockThatLivesForAgesIsWaitedForWithoutAskingAllTheTime(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		for _, ms := range []int64{9e15, math.MaxInt64/1_000_000 + 1, 1e12} {
			if ms != 1e12 && strings.Contains(t.Name(), "embedded") {
				continue // it has no such times
			}
			testlock.Must(t, rdb.FlushAll(bg).Err())
			proxy := faultproxy.New(t, rdb.Options().Addr)
			_, hold := testlock.Lock(t, newMutex(testlock.NewSession(t, rdb), "x"), bg)
			keys := rdb.Keys(bg, "lockline:?:{x}").Val()
			if len(keys) != 1 {
				t.Fatal(keys)
			}
			testlock.Must(t, rdb.Do(bg, "PEXPIRE", keys[0], ms).Err())
			m := newMutex(testlock.NewSession(t, proxy.Client(t)), "x")
			_, _, _ = m.TryLock(bg)
			proxy.Reset()
			if _, _, err := m.Lock(bg, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
				t.Errorf("%d ms: %v", ms, err)
			}
			if n := proxy.Count("EVAL", "EVALSHA"); n > 20 {
				t.Errorf("%d ms: %d requests", ms, n)
			}
			if st, err := m.Inspect(bg); err != nil || !st.Held || st.Remaining < 365*24*time.Hour {
				t.Errorf("%d ms: %+v, %v", ms, st, err)
			}
			got := make(chan error, 1)
			go func() { got <- testlock.Cycle(testlock.Bounded(t), m) }()
			testlock.Unlock(t, hold)
			testlock.Must(t, <-got)
		}
	})
}

func TestTheErrorAboutAnOddValueIsFinal(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		proxy := faultproxy.New(t, rdb.Options().Addr)
		m := newMutex(testlock.NewSession(t, proxy.Client(t)), "x")
		_, hold := testlock.Lock(t, m, bg)
		testlock.Unlock(t, hold)
		memory := rdb.Keys(bg, "lockline:?:{x}:t").Val()[0]
		testlock.Must(t, rdb.HSet(bg, memory, "t", "zzz").Err())
		for what, acquire := range map[string]func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error){"Lock": m.Lock, "TryLock": m.TryLock} {
			proxy.Reset()
			_, _, err := acquire(bg) // with a context that may end, a copy that is late is sent again
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`the key %q has "zzz" in its field "t"`, memory)) {
				t.Errorf("%s: %v", what, err)
			}
			if n := proxy.Count("EVAL", "EVALSHA"); n != 1 {
				t.Errorf("%s: %d requests", what, n)
			}
		}
		if n := rdb.Exists(bg, strings.TrimSuffix(memory, ":t")).Val(); n != 0 {
			t.Error("something was written before the error")
		}
	})
}
