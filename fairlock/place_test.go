package fairlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

// Who comes directly behind another goroutine of its session waits with it, as one entry, and is handed the lock in memory.

func TestGoroutinesWithNobodyBetweenThemStandInOnePlace(t *testing.T) {
	everyServer(t, func(t *testing.T, rdb *redis.Client) {
		a, b, c := newSession(t, rdb), newSession(t, rdb), newSession(t, rdb)
		hold := lock(t, fairlock.New(a, "x"))
		l := newLine(t, rdb)
		lease := rlock.WithLease(time.Minute) // is a grant of its own
		for i, w := range []struct {
			s       *rlock.Session
			options []rlock.Option
			places  int64
		}{{b, nil, 1}, {b, nil, 1}, {b, nil, 1}, {c, nil, 2}, {b, nil, 3}, {b, nil, 3}, {b, []rlock.Option{lease}, 4}, {b, nil, 5}, {c, nil, 6}, {c, nil, 6}} {
			l.join(fairlock.New(w.s, "x"), i, w.options...)
			if n := rdb.ZCard(bg, queueKey).Val(); n != w.places {
				t.Errorf("waiter %d: %d places, want %d", i, n, w.places)
			}
		}
		st, err := fairlock.New(a, "x").Inspect(bg)
		must(t, err)
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
		unlock(t, hold)
		places := map[string]bool{}
		for i := range 10 {
			got := l.next()
			if got.who != i {
				t.Fatalf("waiter %d is served as number %d", got.who, i)
			}
			if st, err = fairlock.New(a, "x").Inspect(bg); err != nil {
				t.Fatal(err)
			}
			places[st.Owner] = true
			unlock(t, got.hold)
		}
		if len(places) != 6 {
			t.Errorf("%d grants served them", len(places))
		}
		eventually(t, "nothing is left", func() bool { return len(rdb.Keys(bg, "*").Val()) == 1 })
	})
}

// throughProxy is a session that waits behind a hold of another one, and has one goroutine in the queue, whose
// context first is. Heartbeats are hours apart.
func throughProxy(t *testing.T) (rdb *redis.Client, p *faultproxy.Proxy, s *rlock.Session, hold *rlock.Hold, l *line, cancel context.CancelFunc, first chan error) {
	server := testredis.Start(t)
	rdb, p = server.Client(t), faultproxy.New(t, server.Addr)
	s = newSession(t, p.Client(t), rlock.WithLiveness(3*time.Hour))
	unlock(t, lock(t, fairlock.New(s, "warm")))
	hold = lock(t, fairlock.New(newSession(t, rdb), "x"), rlock.WithLease(time.Hour)) // its end must not help
	l = newLine(t, rdb)
	ctx, cancel := context.WithCancel(bg)
	ended := make(chan error, 1)
	l.wg.Go(func() {
		_, h, err := fairlock.New(s, "x").Lock(ctx)
		if err == nil {
			l.got <- arrival{0, h, nil}
		}
		ended <- err
	})
	eventually(t, "the first one waits", func() bool { return queued(t, rdb) == 1 })
	// It asks once more when it is subscribed. What comes later is not to find that under way.
	kind := kindOf(t)
	eventually(t, "it has asked again", func() bool {
		for _, r := range p.Requests() {
			if kind(r) == "heartbeat" {
				return true
			}
		}
		return false
	})
	return rdb, p, s, hold, l, cancel, ended
}

func TestWhosePlaceWasTakenIsServedThoughTheAnswerWasLost(t *testing.T) {
	rdb, p, s, hold, l, cancel, _ := throughProxy(t)
	defer cancel()
	kind := kindOf(t)
	lost := false
	p.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if kind(*r) == "lock" && !lost {
			lost = true
			return faultproxy.CutReply
		}
		return faultproxy.Pass
	})
	l.join(fairlock.New(s, "x"), 1) // also by the copy that is not answered
	eventually(t, "both wait", func() bool { return queued(t, rdb) == 2 && rdb.ZCard(bg, queueKey).Val() >= 1 })
	unlock(t, hold)
	served := map[int]bool{}
	for range 2 {
		got := l.next()
		served[got.who] = true
		unlock(t, got.hold)
	}
	if !served[0] || !served[1] {
		t.Error(served)
	}
	eventually(t, "nothing is left", func() bool { return len(rdb.Keys(bg, "lockline:f:{x}*").Val()) == 1 })
}

// One of two leaves at the moment at which the place is taken, and nobody knows of that yet.
func TestOneOfTwoLeavesWhileTheirPlaceChanges(t *testing.T) {
	for name, firstLeaves := range map[string]bool{"who came first": true, "who came later": false} {
		t.Run(name, func(t *testing.T) {
			rdb, p, s, hold, l, cancel, first := throughProxy(t)
			defer cancel()
			kind := kindOf(t)
			executed, deliver := make(chan struct{}), make(chan struct{})
			p.OnReply(func(r faultproxy.Request) {
				if kind(r) == "lock" {
					close(executed)
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
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			close(deliver)
			unlock(t, hold)
			got := l.next()
			if got.who != who {
				t.Errorf("%d is served", got.who)
			}
			unlock(t, got.hold)
			must(t, <-stayed)
			eventually(t, "nothing is left", func() bool { return len(rdb.Keys(bg, "lockline:f:{x}*").Val()) == 1 })
		})
	}
}
