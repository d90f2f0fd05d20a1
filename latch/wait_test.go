package latch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

func TestWaitReturnsAtOnceWhereNothingRuns(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	l := latchesOf(t, proxy.Client(t), 1)[0]
	testlock.Must(t, l.Wait(bg))
	set(t, l, 1)
	countDown(t, l)
	testlock.Must(t, l.Wait(bg))
	if n := proxy.Count("SUBSCRIBE"); n != 0 {
		t.Errorf("%d subscriptions for a latch that is over", n)
	}
}

func TestAHundredWaitersInTwentySessionsAllWakeByOneMessage(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := server.Client(t)
	ls := latchesOf(t, proxy.Client(t), 20)
	set(t, ls[0], 2)
	done := make(chan error, 100)
	for i := range 100 {
		go func() { done <- ls[i%20].Wait(bg) }()
	}
	listening(t, rdb, 20)
	testlock.Eventually(t, "all look after they listen", func() bool { return scripts(proxy) >= 1+200 })
	countDown(t, ls[1])
	select {
	case err := <-done:
		t.Fatalf("Wait returned at 1: %v", err)
	default:
	}
	proxy.Reset()
	countDown(t, ls[1])
	for range 100 {
		testlock.Must(t, testlock.Receive(t, "awake", done))
	}
	testlock.Eventually(t, "each session has its message", func() bool { return proxy.CountPushed() >= 20 })
	if n := proxy.CountPushed(); n != 20 {
		t.Errorf("%d messages to 20 sessions", n)
	}
	if n := scripts(proxy); n > 20 { // a few may still have been looking
		t.Errorf("%d requests; the message says it all", n)
	}
}

// scripts counts the requests that run scripts.
func scripts(p *faultproxy.Proxy) int { return p.Count("EVALSHA") }

func TestAWaiterSendsNothingWhileItSleeps(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ls := latchesOf(t, w.Client, 2)
		set(t, ls[0], 1)
		done := wait(bg, ls[1])
		time.Sleep(time.Second)
		before := w.Net.Count()
		time.Sleep(time.Hour) // less than a third of the lifetime
		if pings, looks := int(time.Hour/(3*time.Second)), int(time.Hour/(30*time.Second)); w.Net.Count()-before > pings+looks+1 {
			t.Errorf("%d writes in an hour, of which %d are pings", w.Net.Count()-before, pings)
		}
		countDown(t, ls[0])
		ended(t, done, nil)
	})
}

func TestALatchThatSomebodyWaitsForDoesNotExpire(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		l := latch.New(s, "x", latch.WithLifetime(time.Hour))
		set(t, l, 1)
		done := wait(bg, latchesOf(t, w.Client, 1)[0]) // whose own lifetime would be a day
		time.Sleep(5 * time.Hour)
		wantCount(t, l, 1)
		countDown(t, l)
		ended(t, done, nil)
	})
}

func TestALatchThatNobodyUsesExpiresAfterItsLifetime(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		l := latch.New(s, "x", latch.WithLifetime(time.Hour))
		set(t, l, 3)
		time.Sleep(59 * time.Minute)
		countDown(t, l) // which renews it
		time.Sleep(59 * time.Minute)
		if !w.Exists(key) {
			t.Error("it expired before its time")
		}
		time.Sleep(2 * time.Minute)
		if w.Exists(key) {
			t.Error("it is still there")
		}
	})
}

func TestNoKeyIsLeftSomeMinutesAfterTheEnd(t *testing.T) {
	for _, end := range []string{"zero", "deleted", "counted where none runs"} {
		t.Run(end, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				l := latchesOf(t, w.Client, 1)[0]
				switch end {
				case "zero":
					set(t, l, 1)
					countDown(t, l)
				case "deleted":
					set(t, l, 1)
					_, err := l.Delete(bg)
					testlock.Must(t, err)
				default:
					countDown(t, l)
				}
				time.Sleep(2*time.Minute + time.Second)
				if keys := w.Keys(); len(keys) != 0 {
					t.Errorf("left: %q", keys)
				}
			})
		})
	}
}

func TestWhatALatchRemembersIsForgottenWhileItRuns(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		l := latchesOf(t, w.Client, 1)[0]
		set(t, l, 10000)
		for range 200 {
			countDown(t, l)
			time.Sleep(time.Second)
		}
		fields, err := w.HKeys(key)
		testlock.Must(t, err)
		if len(fields) > 90 { // requests are remembered for 40 s, and old ones are deleted every 30 s
			t.Errorf("%d fields", len(fields))
		}
		wantCount(t, l, 9800)
	})
}

func TestAWaitThatRacesTheLastCountDownNeitherFailsNorSleeps(t *testing.T) {
	t.Parallel()
	_, ls := open(t, 3)
	for range 400 {
		set(t, ls[0], 1)
		var racing sync.WaitGroup
		ctx := testlock.Bounded(t)
		for i := range 2 {
			racing.Go(func() {
				if err := ls[i+1].Wait(ctx); err != nil {
					t.Errorf("Wait: %v", err)
				}
			})
		}
		racing.Go(func() { countDown(t, ls[0]) })
		racing.Wait()
	}
}

func TestAWaiterOfAnEarlierRunReturnsThoughTheLatchWasSetAnew(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := server.Client(t)
	other := latchesOf(t, rdb, 1)[0]
	l := latchesOf(t, proxy.Client(t), 1)[0]
	for how, want := range map[string]error{"counted": nil, "deleted": latch.ErrDeleted} {
		t.Run(how, func(t *testing.T) {
			set(t, other, 1)
			proxy.Refuse(false)
			done := waits(t, rdb, l)
			proxy.Refuse(true) // so it hears nothing
			if want == nil {
				countDown(t, other)
			} else {
				_, err := other.Delete(bg)
				testlock.Must(t, err)
			}
			set(t, other, 1)
			countDown(t, other)
			set(t, other, 1)
			proxy.Refuse(false)
			ended(t, done, want)
			wantCount(t, other, 1)
			countDown(t, other)
		})
	}
}

func TestAWaiterWhoseSubscriptionBrokeLooksAgain(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := server.Client(t)
	other := latchesOf(t, rdb, 1)[0]
	l := latchesOf(t, proxy.Client(t), 1)[0]
	for range 5 {
		set(t, other, 1)
		done := waits(t, rdb, l)
		proxy.Refuse(true)
		countDown(t, other)
		proxy.Refuse(false)
		ended(t, done, nil)
	}
}

func TestAWaiterOfARunThatRedisForgotIsTold(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := server.Client(t)
	other := latchesOf(t, rdb, 1)[0]
	l := latchesOf(t, proxy.Client(t), 1)[0]
	for _, anew := range []bool{false, true} {
		set(t, other, 1)
		done := waits(t, rdb, l)
		testlock.Must(t, rdb.FlushAll(bg).Err())
		if anew {
			set(t, other, 1)
		}
		proxy.CutAll()
		ended(t, done, latch.ErrGone)
	}
}

func TestCountDownAndWaitWaitsForTheRunThatItCounted(t *testing.T) {
	t.Parallel()
	_, ls := open(t, 4)
	for range 100 {
		set(t, ls[0], 4)
		var all sync.WaitGroup
		ctx := testlock.Bounded(t)
		for _, l := range ls {
			all.Go(func() {
				if err := l.CountDownAndWait(ctx); err != nil {
					t.Errorf("CountDownAndWait: %v", err)
				}
			})
		}
		all.Wait()
		wantCount(t, ls[1], 0)
	}
}

func TestAForgedMessageEndsNoWait(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	var ls []*latch.Latch
	var ids []string
	for range 2 {
		s := testlock.NewSession(t, rdb)
		ls, ids = append(ls, latch.New(s, "x")), append(ids, s.ID())
	}
	set(t, ls[0], 1)
	done := waits(t, rdb, ls[1])
	messages := []string{"D x", "D", "Z", "Z ", "", "Z " + key, "L", "L x 0", "nonsense"}
	for n := range 100 { // ids of a session are no secret
		messages = append(messages, fmt.Sprintf("Z %s:%d", ids[0], n), fmt.Sprintf("D %s:%d ", ids[0], n))
	}
	for _, message := range messages {
		testlock.Must(t, rdb.Publish(bg, key, message).Err())
	}
	select {
	case err := <-done:
		t.Fatalf("ended by a message: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	countDown(t, ls[0])
	ended(t, done, nil)
}

func TestWaitersLeaveNoSubscription(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 1)
	set(t, ls[0], 1)
	var waiters []<-chan error
	ctx, cancel := context.WithCancel(bg)
	for range 10 {
		waiters = append(waiters, wait(ctx, ls[0]))
	}
	listening(t, rdb, 1)
	if n, err := rdb.PubSubNumSub(bg, key).Result(); err != nil || n[key] != 1 {
		t.Errorf("ten waiters of a session have %v subscriptions, %v", n, err)
	}
	cancel()
	for _, done := range waiters {
		ended(t, done, context.Canceled)
	}
	testlock.NoSubscriptions(t, rdb)
}

func TestWaitEndsWithItsSession(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
	testlock.Must(t, err)
	l := latch.New(s, "x")
	set(t, l, 1)
	done := waits(t, rdb, l)
	testlock.Must(t, s.Close())
	ended(t, done, rlock.ErrClosed)
	_, set := l.TrySet(bg, 1)
	_, deleted := l.Delete(bg)
	_, count := l.Count(bg)
	_, _, joined := l.Join(bg, "p")
	for i, err := range []error{set, deleted, count, joined, l.CountDown(bg), l.Wait(bg), l.CountDownAndWait(bg)} {
		testlock.WantError(t, fmt.Sprint("method ", i), err, rlock.ErrClosed)
	}
}
