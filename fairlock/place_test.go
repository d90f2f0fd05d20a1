package fairlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// Who comes directly behind another goroutine of its session waits with it, as one entry, and is handed the lock in memory.

// notPrompt has a wait send no copy that is sent again soon: a place of which there may be two copies is not taken by others.
var notPrompt = rlock.WaitAtMost(4 * testlock.Patience)

// A request whose answer is late may stand in the queue already, and others behind it. So goroutines that come before it is sent again do
// not join it.
func TestAGoroutineThatComesWhileAnAnswerIsLateOvertakesNobody(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	holder := fairlock.New(testlock.NewSession(t, server.Client(t)), "x")
	other := testlock.Warm(t, fairlock.New(testlock.NewSession(t, server.Client(t)), "x"))
	m := fairlock.New(testlock.NewSession(t, proxy.Client(t)), "x")
	for range 5 { // its requests are prompt then
		testlock.Must(t, testlock.Cycle(ctx, m))
	}
	hold := testlock.Take(t, holder)
	queued, answer := make(chan struct{}), make(chan struct{})
	var late atomic.Bool
	proxy.OnReply(func(r faultproxy.Request) {
		if r.Is("EVALSHA") && late.CompareAndSwap(false, true) {
			close(queued)
			<-answer
		}
	})
	first := testlock.Go(ctx, m)
	testlock.Receive(t, "request", queued)
	between := testlock.Go(ctx, other)
	testlock.Eventually(t, "two in the queue", func() bool { return len(testlock.Inspect(t, holder).Queue) == 2 })
	last := testlock.Go(ctx, m)
	time.Sleep(100 * time.Millisecond) // the first request is sent again
	close(answer)
	testlock.Eventually(t, "three in the queue", func() bool { return len(testlock.Inspect(t, holder).Queue) == 3 })
	testlock.Unlock(t, hold)
	for _, got := range []<-chan testlock.Grant{first, between, last} {
		testlock.Unlock(t, testlock.Granted(t, got))
	}
}

func TestGoroutinesWithNobodyBetweenThemStandInOnePlace(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		a, b, c := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)
		hold := testlock.Take(t, fairlock.New(a, "x"))
		l := newLine(t, rdb)
		lease := rlock.WithLease(time.Minute) // is a grant of its own
		for i, w := range []struct {
			s       *rlock.Session
			options []rlock.Option
			places  int64
		}{{b, nil, 1}, {b, nil, 1}, {b, nil, 1}, {c, nil, 2}, {b, nil, 3}, {b, nil, 3}, {b, []rlock.Option{lease}, 4}, {b, nil, 5}, {c, nil, 6}, {c, nil, 6}} {
			l.join(fairlock.New(w.s, "x"), i, append(w.options, notPrompt)...)
			if n := rdb.ZCard(bg, queueKey).Val(); n != w.places {
				t.Errorf("waiter %d: %d places, want %d", i, n, w.places)
			}
		}
		st := testlock.Inspect(t, fairlock.New(a, "x"))
		var order []*rlock.Session
		for _, w := range st.Queue {
			for _, s := range []*rlock.Session{b, c} {
				if w.Session == s.ID() {
					order = append(order, s)
				}
			}
		}
		if len(order) != 10 || order[2] != b || order[3] != c || order[4] != b || order[8] != c {
			t.Errorf("Inspect shows another order: %+v", st.Queue)
		}
		testlock.Unlock(t, hold)
		places := map[string]bool{}
		for i := range 10 {
			got := l.next()
			if got.who != i {
				t.Fatalf("waiter %d is served as number %d", got.who, i)
			}
			places[testlock.Inspect(t, fairlock.New(a, "x")).Owner] = true
			testlock.Unlock(t, got.hold)
		}
		if len(places) != 6 {
			t.Errorf("%d grants served them", len(places))
		}
		testlock.Eventually(t, "nothing is left", func() bool { return len(rdb.Keys(bg, "*").Val()) == 1 })
	})
}

// throughProxy is a session that waits behind a hold of another one, and has one goroutine in the queue, whose
// context first is. Heartbeats are hours apart.
func throughProxy(t *testing.T, options ...rlock.SessionOption) (rdb *redis.Client, p *faultproxy.Proxy, s *rlock.Session, hold *rlock.Hold, l *line, cancel context.CancelFunc, first chan error) {
	server := testredis.Start(t)
	rdb, p = server.Client(t), faultproxy.New(t, server.Addr)
	impatient := p.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	s = testlock.NewSession(t, impatient, append(options, rlock.WithLiveness(3*time.Hour))...)
	testlock.Works(t, fairlock.New(s, "warm"))
	hold = testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"), rlock.WithLease(time.Hour)) // its end must not help
	l = newLine(t, rdb)
	ctx, cancel := context.WithCancel(bg)
	ended := make(chan error, 1)
	l.wg.Go(func() {
		_, h, err := fairlock.New(s, "x").Lock(ctx, notPrompt)
		if err == nil {
			l.got <- arrival{0, h, nil}
		}
		ended <- err
	})
	testlock.Eventually(t, "the first one waits", func() bool { return queued(t, rdb) == 1 })
	// It asks once more when it is subscribed. What comes later is not to find that under way.
	kind := kindOf(t)
	testlock.Eventually(t, "it has asked again", func() bool {
		for _, r := range p.Requests() {
			if kind(r) == "heartbeat" {
				return true
			}
		}
		return false
	})
	return rdb, p, s, hold, l, cancel, ended
}

func TestWhosePlaceWasTakenKeepsItThoughTheAnswerWasLost(t *testing.T) {
	for name, void := range map[string]bool{"and the next copy is too late": true, "": false} {
		t.Run(name, func(t *testing.T) {
			// A short lease makes a request void that takes a second.
			rdb, p, s, hold, l, cancel, _ := throughProxy(t, rlock.WithWatchdogTimeout(time.Second))
			defer cancel()
			kind := kindOf(t)
			var copies atomic.Int32
			others := make(chan struct{})
			p.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				if kind(*r) != "lock" {
					return faultproxy.Pass
				}
				switch copies.Add(1) {
				case 1:
					return faultproxy.CutReply // it has taken the place
				case 2:
					<-others
					if void {
						<-time.After(1200 * time.Millisecond)
					}
				}
				return faultproxy.Pass
			})
			l.join(fairlock.New(s, "x"), 1)
			l.join(fairlock.New(testlock.NewSession(t, rdb), "x"), 2)
			close(others)
			testlock.Eventually(t, "all copies are answered", func() bool { return copies.Load() >= 2 && (!void || copies.Load() >= 3) })
			testlock.Unlock(t, hold)
			l.serve(3)
			testlock.Eventually(t, "nothing is left", func() bool { return len(rdb.Keys(bg, "lockline:f:{x}*").Val()) == 1 })
		})
	}
}

// The session's first waiter is still being subscribed when the next one takes its place and is granted: nobody hears the message,
// and the heartbeat behind the subscription asks about the first one, which is over.
func TestAHeartbeatTellsOfAGrantThatItDidNotAskFor(t *testing.T) {
	server := testredis.Start(t)
	rdb, p := server.Client(t), faultproxy.New(t, server.Addr)
	waits := make(testlock.Waits, 2)
	s := testlock.NewSession(t, p.Client(t), rlock.WithLiveness(3*time.Hour), rlock.WithObserver(waits))
	testlock.Works(t, fairlock.New(s, "warm"))
	hold := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"), rlock.WithLease(time.Hour))
	kind := kindOf(t)
	l := newLine(t, rdb)
	subscribe, taken, tell, beaten, beat := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	var locks, beats atomic.Int32
	p.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if r.Is("SUBSCRIBE") {
			<-subscribe
		}
		return faultproxy.Pass
	})
	p.OnReply(func(r faultproxy.Request) {
		switch kind(r) {
		case "lock":
			if locks.Add(1) == 2 {
				close(taken)
				<-tell
			}
		case "heartbeat":
			if beats.Add(1) == 1 {
				close(beaten)
				<-beat
			}
		}
	})
	l.join(fairlock.New(s, "x"), 0)
	testlock.Receive(t, "the first one knows that it waits", waits)
	l.wg.Go(func() {
		_, h, err := fairlock.New(s, "x").Lock(l.ctx, notPrompt)
		l.got <- arrival{1, h, err}
	})
	<-taken
	testlock.Unlock(t, hold)
	close(subscribe)
	<-beaten
	close(tell)
	testlock.Receive(t, "the second one knows that it waits", waits)
	close(beat)
	l.serve(2)
}

// go-redis ends the reading of an answer with the context of who asked, if it is told to. The answer is of others, too.
func TestWhoGivesUpLeavesThePlaceToTheOthers(t *testing.T) {
	rdb, p, s, hold, l, cancel, _ := throughProxy(t)
	defer cancel()
	kind := kindOf(t)
	taken, deliver := make(chan struct{}), make(chan struct{})
	take := sync.OnceFunc(func() { close(taken) })
	p.OnReply(func(r faultproxy.Request) {
		if kind(r) == "lock" {
			take()
			<-deliver
		}
	})
	ctx, cancel := context.WithTimeout(bg, time.Second)
	defer cancel()
	gaveUp := make(chan error, 1)
	go func() {
		_, _, err := fairlock.New(s, "x").Lock(ctx)
		gaveUp <- err
	}()
	<-taken
	p.OnReply(nil)
	l.join(fairlock.New(testlock.NewSession(t, rdb), "x"), 1)
	if err := <-gaveUp; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	<-time.After(100 * time.Millisecond) // as long as go-redis may read on
	close(deliver)
	testlock.Eventually(t, "two are left", func() bool { return rdb.ZCard(bg, queueKey).Val() == 2 })
	testlock.Unlock(t, hold)
	l.serve(2)
}

// A copy of a request that stands already has no other place to take, and gives nobody its own.
func TestACopyThatStandsAlreadyTakesNoPlace(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		release := holdRaw(t, rdb, "22222222-0000-4000-8000-000000000000:1")
		ask := func(owner, behind string) string {
			reply, err := script(t, "../internal/queue/lock.lua").Run(bg, rdb, []string{lockKey, memoryKey, queueKey, aliveKey, aboutKey},
				owner, 30000, int64(1)<<52, "", 60000, 15000, "lockline:s:", 1, behind, 1, "nonce").Text()
			testlock.Must(t, err)
			return reply[:1]
		}
		want := []string{"a:1", "b:1", "a:2"}
		says := map[string]string{"a:1": "H", "b:1": "W", "a:2": "H"} // W: another session is next
		for _, owner := range want {
			if status := ask(owner, ""); status != says[owner] {
				t.Errorf("%s: %s", owner, status)
			}
		}
		if status := ask("a:1", "a:2"); status != "H" {
			t.Error(status)
		}
		if order := rdb.ZRange(bg, queueKey, 0, -1).Val(); !slices.Equal(order, want) {
			t.Errorf("the queue is %v", order)
		}
		release("lockline:s:")
	})
}

// One of two leaves at the moment at which the place is taken, and nobody knows of that yet.
func TestOneOfTwoLeavesWhileTheirPlaceChanges(t *testing.T) {
	for name, firstLeaves := range map[string]bool{"who came first": true, "who came later": false} {
		t.Run(name, func(t *testing.T) {
			rdb, p, s, hold, l, cancel, first := throughProxy(t)
			defer cancel()
			kind := kindOf(t)
			executed, deliver := make(chan struct{}), make(chan struct{})
			execute := sync.OnceFunc(func() { close(executed) })
			p.OnReply(func(r faultproxy.Request) {
				if kind(r) == "lock" {
					execute()
					<-deliver
				}
			})
			ctx, leave := context.WithCancel(bg)
			defer leave()
			second := make(chan error, 1)
			l.wg.Go(func() {
				_, h, err := fairlock.New(s, "x").Lock(ctx)
				if err == nil {
					l.got <- arrival{1, h, nil}
				}
				second <- err
			})
			<-executed
			p.OnReply(nil)
			if n := rdb.ZCard(bg, queueKey).Val(); n != 1 {
				t.Fatalf("%d places", n)
			}
			left, stayed, who := first, second, 1
			if firstLeaves {
				cancel()
			} else {
				leave()
				left, stayed, who = second, first, 0
			}
			testlock.WantError(t, "Lock", <-left, context.Canceled)
			close(deliver)
			testlock.Unlock(t, hold)
			got := l.next()
			if got.who != who {
				t.Errorf("%d is served", got.who)
			}
			testlock.Unlock(t, got.hold)
			testlock.Must(t, <-stayed)
			testlock.Eventually(t, "nothing is left", func() bool { return len(rdb.Keys(bg, "lockline:f:{x}*").Val()) == 1 })
		})
	}
}
