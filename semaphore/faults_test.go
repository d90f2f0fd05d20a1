package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

// proxied are a semaphore through a proxy, and one beside it. Both know the clock, and the server the scripts.
func proxied(t *testing.T, limit int, options ...rlock.SessionOption) (rdb *redis.Client, proxy *faultproxy.Proxy, s, other *semaphore.Semaphore) {
	t.Helper()
	server := testredis.Start(t)
	rdb = server.Client(t)
	proxy = faultproxy.New(t, server.Addr)
	s = semaphore.New(testlock.NewSession(t, proxy.Client(t, testlock.Impatient), options...), "x", limit)
	other = semaphore.New(testlock.NewSession(t, rdb), "x", limit)
	for _, s := range []*semaphore.Semaphore{s, other} {
		_, hold := acquire(t, s, 1)
		testlock.Must(t, hold.Extend(bg, 31*time.Second))
		unlock(t, hold)
	}
	proxy.Reset()
	return rdb, proxy, s, other
}

// once gives an action to the first request that runs a script.
func once(action faultproxy.Action) func(*faultproxy.Request) faultproxy.Action {
	var first sync.Once
	return func(r *faultproxy.Request) (a faultproxy.Action) {
		if r.Is("EVALSHA", "EVAL") {
			first.Do(func() { a = action })
		}
		return a
	}
}

func TestAProcessThatDiesGivesItsPermitsBackWithItsLease(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	_, proxy, s, other := proxied(t, 2, rlock.WithWatchdogTimeout(lease))
	ctx, dead := acquire(t, s, 2)
	two, one := begin(bg, other, 2), begin(bg, other, 1) // one of them behind the other
	queue(t, other, 2)
	proxy.BlackHole(true, true)
	began := time.Now()
	for range 2 {
		var g got
		select {
		case g = <-two:
			two = nil
		case g = <-one:
			one = nil
		case <-time.After(30 * time.Second):
			t.Fatal("they are not served")
		}
		testlock.Must(t, g.err)
		if dead.Err() == nil {
			t.Error("two have the permits")
		}
		testlock.Receive(t, "the dead one's context ends", ctx.Done()) // whose timer may be late
		unlock(t, g.hold)
	}
	if waited := time.Since(began); waited > 10*lease { // by the lease, and not by the waiter's own
		t.Errorf("they were served after %v", waited)
	}
	if !errors.Is(context.Cause(ctx), rlock.ErrLost) {
		t.Errorf("the cause: %v", context.Cause(ctx))
	}
	proxy.BlackHole(false, false)
	proxy.CutAll()
	if err := dead.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("a late Unlock: %v", err)
	}
	_, all := acquire(t, other, 2)
	time.Sleep(20 * time.Millisecond)
	if st := inspect(t, other); st.Used != 2 {
		t.Errorf("the late Unlock has added permits: %+v", st)
	}
	unlock(t, all)
}

func TestALostRequestOrReplyChangesNoCount(t *testing.T) {
	t.Parallel()
	_, proxy, s, other := proxied(t, 3)
	for _, action := range []faultproxy.Action{faultproxy.CutReply, faultproxy.SwallowReply, faultproxy.DropAndCut, faultproxy.Swallow} {
		proxy.OnRequest(once(action))
		_, a := acquire(t, s, 2)
		if st := inspect(t, other); st.Used != 2 {
			t.Errorf("%v of an Acquire: %+v", action, st)
		}
		proxy.OnRequest(once(action))
		if _, hold, err := s.TryAcquire(bg, 1); err != nil {
			t.Errorf("%v of a TryAcquire: %v", action, err)
		} else {
			unlock(t, hold)
		}
		proxy.OnRequest(once(action))
		unlock(t, a)
		proxy.OnRequest(once(action))
		if _, err := s.TrySetLimit(bg, 3); err != nil {
			t.Errorf("%v of a TrySetLimit: %v", action, err)
		}
		if st := inspect(t, other); st.Used != 0 || st.Limit != 3 {
			t.Errorf("%v of an Unlock: %+v", action, st)
		}
	}
}

func TestACopyOfARequestThatComesAgainOrLateTakesAndGivesNothing(t *testing.T) {
	t.Parallel()
	_, proxy, s, other := proxied(t, 2)
	proxy.Reset()
	proxy.OnRequest(once(faultproxy.SwallowReply)) // so that the attempt has a copy that might come yet
	_, a := acquire(t, s, 1)
	_, b := acquire(t, s, 1)
	unlock(t, a)
	replay := func(when string, used int) {
		t.Helper()
		for _, r := range proxy.Requests() {
			if r.Is("EVALSHA", "EVAL") {
				if _, err := proxy.Replay(r); err != nil && !errors.As(err, new(faultproxy.ReplyError)) {
					t.Fatal(err)
				}
			}
		}
		if st := inspect(t, other); st.Used != used || len(st.Queue) != 0 {
			t.Errorf("%s: %+v, want %d", when, st, used)
		}
	}
	// The first is over; a copy of its Acquire must take nothing, and one of its Unlock give nothing that is another's. A copy of b's Acquire is answered again.
	replay("one is over", 1)
	unlock(t, b)
	_, c := acquire(t, other, 2)
	release := []faultproxy.Request{}
	for _, r := range proxy.Requests() {
		if r.Is("EVALSHA", "EVAL") && len(r.Args) > 9 && len(r.Args) < 16 { // releases
			release = append(release, r)
		}
	}
	if len(release) < 2 {
		t.Fatalf("%d releases", len(release))
	}
	for _, r := range release {
		_, err := proxy.Replay(r)
		testlock.Must(t, err)
	}
	if st := inspect(t, other); st.Used != 2 {
		t.Errorf("another's permits were given back: %+v", st)
	}
	unlock(t, c)
}

func TestAWaitEndsSoonWhileRedisStandsStill(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	s, other := semaphore.New(testlock.NewSession(t, rdb), "x", 1), semaphore.New(testlock.NewSession(t, rdb), "x", 1)
	_, hold := acquire(t, s, 1)
	waiting := begin(bg, s, 1)
	queue(t, s, 1)
	if _, _, err := s.TryAcquire(bg, 1); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("one that tries before one that waits: %v", err)
	}
	server.Freeze()
	defer server.Thaw()
	for _, acquire := range []func(context.Context, int, ...rlock.Option) (context.Context, *rlock.Hold, error){s.Acquire, other.Acquire, other.TryAcquire} {
		ctx, cancel := context.WithTimeout(bg, 30*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, _, err := acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("it took %v", waited)
		}
	}
	server.Thaw()
	unlock(t, hold)
	unlock(t, await(t, waiting))
}

func TestWaitersSurviveAnOutage(t *testing.T) {
	t.Parallel()
	rdb, proxy, s, other := proxied(t, 1)
	_, hold := acquire(t, other, 1)
	waiting := begin(bg, s, 1)
	listens(t, rdb)
	proxy.Refuse(true)
	proxy.CutAll()
	unlock(t, hold) // its message reaches nobody
	time.Sleep(50 * time.Millisecond)
	waits(t, "one that hears nothing", waiting)
	proxy.Refuse(false)
	unlock(t, await(t, waiting))
}

// listens waits until the one attempt that waits has asked again when it listened.
func listens(t *testing.T, rdb *redis.Client) {
	t.Helper()
	testlock.Eventually(t, "it waits, and has asked again when it listened", func() bool {
		about := rdb.HVals(bg, "lockline:p:{x}:d").Val()
		return len(about) == 1 && strings.Contains(about[0], "+ ")
	})
}

// listener is the owner field of the one attempt that waits, and its channel, once it listens.
func listener(t *testing.T, rdb *redis.Client, s *semaphore.Semaphore) (owner, channel string) {
	t.Helper()
	queue(t, s, 1)
	w := inspect(t, s).Queue[0]
	channel = "lockline:s:" + w.Session
	testlock.Eventually(t, "it listens", func() bool { return rdb.PubSubNumSub(bg, channel).Val()[channel] == 1 })
	return w.Owner, channel
}

func TestAForgedMessageGrantsNothing(t *testing.T) {
	t.Parallel()
	rdb, sems := open(t, 2, 1)
	_, hold := acquire(t, sems[0], 1)
	waiting := begin(bg, sems[1], 1)
	owner, channel := listener(t, rdb, sems[0])
	now := rdb.Time(bg).Val().UnixMicro()
	for _, m := range []string{"%s %d %d 30000 AAAAAAAAAAAAAAAA", "%s %d %d 30000 ", "%s %d %d 30000", "%s 1", "%s", "%s x", "%s -5"} {
		args := []any{owner, now, now}
		for range 3 - count(m) {
			args = args[:len(args)-1]
		}
		testlock.Must(t, rdb.Publish(bg, channel, fmt.Sprintf(m, args...)).Err())
	}
	time.Sleep(50 * time.Millisecond)
	waits(t, "one that was told a lie", waiting)
	unlock(t, hold)
	unlock(t, await(t, waiting))
}

// A server's clock that is set back makes the time of an old grant look like a later one.
func TestAMessageOfAGrantThatIsOverGrantsNothing(t *testing.T) {
	t.Parallel()
	rdb, sems := open(t, 2, 1)
	_, hold := acquire(t, sems[0], 1)
	waiting := begin(bg, sems[1], 1)
	owner, channel := listener(t, rdb, sems[0])
	nonce := strings.TrimRight(strings.Fields(rdb.HGet(bg, "lockline:p:{x}:d", owner).Val())[2], "/+")
	tell := func(token int64) {
		later := rdb.Time(bg).Val().Add(time.Hour).UnixMicro()
		testlock.Must(t, rdb.Publish(bg, channel, fmt.Sprintf("%s %d %d 30000 %s", owner, token, later, nonce)).Err())
	}
	tell(hold.Token() - 1)
	tell(hold.Token()) // which it was told when it began to wait
	time.Sleep(50 * time.Millisecond)
	waits(t, "one that was told of a grant that is over", waiting)
	tell(hold.Token() + 1) // as the next grant would
	testlock.Keep(t, await(t, waiting))
	unlock(t, hold)
}

// count is how many arguments a format has.
func count(format string) (n int) {
	for _, c := range format {
		if c == '%' {
			n++
		}
	}
	return n
}

func TestAForcedReleaseEndsThatHolderAlone(t *testing.T) {
	t.Parallel()
	_, sems := open(t, 3, 2, rlock.WithWatchdogTimeout(3*time.Second))
	actx, a := acquire(t, sems[0], 1)
	bctx, b := acquire(t, sems[1], 1)
	waiting := begin(bg, sems[2], 1)
	queue(t, sems[2], 1)
	if forced, err := sems[2].ForceRelease(bg, 1); forced || err != nil {
		t.Errorf("a token that nobody has: %v, %v", forced, err)
	}
	if forced, err := sems[2].ForceRelease(bg, a.Token()); !forced || err != nil {
		t.Errorf("ForceRelease: %v, %v", forced, err)
	}
	hold := await(t, waiting)
	testlock.Receive(t, "the forced one's context ends", actx.Done())
	if !errors.Is(context.Cause(actx), rlock.ErrLost) || bctx.Err() != nil || !errors.Is(a.Unlock(bg), rlock.ErrLost) {
		t.Errorf("%v, %v", context.Cause(actx), bctx.Err())
	}
	unlock(t, b)
	unlock(t, hold)
}

func TestCloseGivesAllBackAtOnce(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	session, err := rlock.NewSession(rdb)
	testlock.Must(t, err)
	s, other := semaphore.New(session, "x", 3), semaphore.New(testlock.NewSession(t, rdb), "x", 3)
	ctx, a := acquire(t, s, 1)
	_, b := acquire(t, s, 2, rlock.WithLease(time.Hour))
	own, others := begin(bg, s, 3), begin(bg, other, 3)
	queue(t, other, 2)
	testlock.Must(t, session.Close())
	if g := testlock.Receive(t, "the end of a wait", own); !errors.Is(g.err, rlock.ErrClosed) {
		t.Errorf("a wait: %v", g.err)
	}
	unlock(t, await(t, others))
	if !errors.Is(context.Cause(ctx), rlock.ErrClosed) || !errors.Is(a.Unlock(bg), rlock.ErrClosed) || !errors.Is(b.Err(), rlock.ErrClosed) {
		t.Errorf("%v, %v, %v", context.Cause(ctx), a.Err(), b.Err())
	}
	if _, _, err := s.TryAcquire(bg, 1); !errors.Is(err, rlock.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestAFixedLeaseRunsOut(t *testing.T) {
	t.Parallel()
	_, sems := open(t, 2, 1)
	ctx, hold := acquire(t, sems[0], 1, rlock.WithLease(2*time.Second))
	waiting := begin(bg, sems[1], 1)
	testlock.Must(t, hold.Extend(bg, 2200*time.Millisecond))
	unlock(t, await(t, waiting))
	testlock.Receive(t, "its context ends", ctx.Done())
	if !errors.Is(context.Cause(ctx), rlock.ErrLost) {
		t.Errorf("the cause: %v", context.Cause(ctx))
	}
}

func TestAForgottenPermitComesBack(t *testing.T) {
	t.Parallel()
	_, sems := open(t, 2, 1, rlock.WithLogger(slog.New(slog.DiscardHandler)))
	ctx, _ := acquire(t, sems[0], 1)
	runtime.GC()
	time.Sleep(20 * time.Millisecond)
	if ctx.Err() != nil {
		t.Error("it was released while its context could be reached")
	}
	ctx = nil
	waiting := begin(bg, sems[1], 1)
	testlock.Eventually(t, "it comes back", func() bool {
		runtime.GC()
		return len(waiting) == 1
	})
	unlock(t, await(t, waiting))
}

func TestAnAsyncUnlockGivesBackAndCanBeTakenAgain(t *testing.T) {
	t.Parallel()
	_, sems := open(t, 2, 1, rlock.WithAsyncUnlock())
	for range 20 {
		_, hold := acquire(t, sems[0], 1)
		unlock(t, hold)
		_, hold, err := sems[0].TryAcquire(bg, 1) // waits for the release
		testlock.Must(t, err)
		unlock(t, hold)
	}
	_, hold := acquire(t, sems[1], 1)
	if _, _, err := sems[0].TryAcquire(bg, 1); err == nil {
		t.Error("TryAcquire got what another session has")
	}
	unlock(t, hold)
}

func TestGoroutinesOfASessionAreServedInMemory(t *testing.T) {
	t.Parallel()
	const goroutines, each = 16, 50
	_, proxy, s, _ := proxied(t, 4, rlock.WithStreak(time.Hour))
	proxy.Reset()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				if err := s.Do(bg, 1, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := proxy.Count("EVALSHA", "EVAL"); n > goroutines*each/2 {
		t.Errorf("%d requests for %d permits", n, goroutines*each)
	}
}

func TestThoseThatWaitInMemoryForALostPermitAskRedis(t *testing.T) {
	t.Parallel()
	_, sems := open(t, 2, 2, rlock.WithStreak(time.Hour), rlock.WithWatchdogTimeout(3*time.Second), rlock.WithLogger(slog.New(slog.DiscardHandler)))
	_, a := acquire(t, sems[0], 1)
	_, b := acquire(t, sems[1], 1)
	waiting := begin(bg, sems[0], 1)
	queue(t, sems[1], 1)
	unlock(t, b)
	second := await(t, waiting) // so the session knows that others want permits
	third := begin(bg, sems[0], 1)
	time.Sleep(20 * time.Millisecond)
	waits(t, "one for which none is free", third)
	for _, h := range []*rlock.Hold{a, second} {
		if forced, err := sems[1].ForceRelease(bg, h.Token()); !forced || err != nil {
			t.Errorf("ForceRelease: %v, %v", forced, err)
		}
	}
	unlock(t, await(t, third))
	runtime.KeepAlive(a)
	runtime.KeepAlive(second)
}

// A waiter asks again, is told of its grant before that request arrives, and gives the permit back. Then the request arrives.
func TestARequestThatComesAfterItsAttemptIsOverTakesNothing(t *testing.T) {
	t.Parallel()
	_, proxy, s, other := proxied(t, 1)
	_, hold := acquire(t, other, 1)
	acquires := 0
	held := make(chan faultproxy.Request, 4)
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if !r.Is("EVALSHA") || len(r.Args) < 20 { // an acquire has the most arguments
			return faultproxy.Pass
		}
		if acquires++; acquires != 2 {
			return faultproxy.Pass
		}
		held <- *r
		return faultproxy.Hold
	})
	waiting := begin(bg, s, 1)
	again := testlock.Receive(t, "it asks again when it listens", held)
	unlock(t, hold)
	unlock(t, await(t, waiting))
	testlock.Must(t, proxy.Release(again))
	time.Sleep(20 * time.Millisecond)
	if st := inspect(t, other); st.Used != 0 || len(st.Queue) != 0 {
		t.Errorf("the late request has taken something: %+v", st)
	}
	unlock(t, await(t, begin(bg, s, 1)))
}

// The reply to a release also says that another attempt of the session was served.
func TestAReplyThatIsLostHidesNoGrant(t *testing.T) {
	t.Parallel()
	rdb, proxy, s, _ := proxied(t, 2, rlock.WithStreak(0))
	_, a := acquire(t, s, 2)
	one := begin(bg, s, 1) // other permits than those that are released, so it is not served in memory
	listens(t, rdb)
	proxy.OnRequest(once(faultproxy.SwallowReply))
	began := time.Now()
	go func() { _ = a.Unlock(bg) }()
	hold := await(t, one)
	if waited := time.Since(began); waited > 5*time.Second { // the next time that it would ask by itself is after 6 s
		t.Errorf("it was told after %v", waited)
	}
	unlock(t, hold)
}
