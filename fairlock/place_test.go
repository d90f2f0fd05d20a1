package fairlock_test

import (
	"context"
	"sync/atomic"

	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Who comes directly behind another goroutine of its session waits with it, as one entry, and is handed the lock in memory.

// notPrompt has a wait send no copy that is sent again soon: a place of which there may be two copies is not taken by others.
var notPrompt = rlock.WaitAtMost(4 * testlock.Patience)

// places are how many entries the queue has.
func (w *world) places() int {
	members, _ := w.ZMembers(queueKey)
	return len(members)
}

// nothingIsLeft checks that the test's keys are gone, but for those that remember tokens.
func (w *world) nothingIsLeft() {
	w.t.Helper()
	testlock.Settle()
	testlock.OnlyTokens(w.t, w.Client)
}

// A request whose answer is late may stand in the queue already, and others behind it. So goroutines that come before it is sent again do
// not join it.
func TestAGoroutineThatComesWhileAnAnswerIsLateOvertakesNobody(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		holder, other, m := w.lockBeside(), w.lockBeside(), w.lock()
		for range 5 { // its requests are prompt then
			testlock.Must(t, testlock.Cycle(ctx, m))
		}
		hold := testlock.Take(t, holder)
		answer, late := make(chan struct{}), false
		w.Net.OnReply(func(r faultproxy.Request) {
			if r.Is("EVALSHA") && !late {
				late = true
				<-answer
			}
		})
		first := testlock.Go(ctx, m)
		synctest.Wait()
		between := testlock.Go(ctx, other)
		synctest.Wait()
		if n := len(testlock.Inspect(t, holder).Queue); !late || n != 2 {
			t.Fatalf("an answer is late: %v, and %d wait", late, n)
		}
		last := testlock.Go(ctx, m)
		time.Sleep(100 * time.Millisecond) // the first request is sent again
		close(answer)
		testlock.Settle()
		testlock.Unlock(t, hold)
		testlock.Served(t, first, between, last)
	})
}

func TestGoroutinesWithNobodyBetweenThemStandInOnePlace(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		a, b, c := w.lock(), w.lock(), w.lock()
		hold := testlock.Take(t, a)
		lease := rlock.WithLease(time.Minute) // is a grant of its own
		var waits []<-chan testlock.Grant
		var order []string // the sessions that wait
		for i, next := range []struct {
			m       *rlock.Mutex
			options []rlock.Option
			places  int
		}{{b, nil, 1}, {b, nil, 1}, {b, nil, 1}, {c, nil, 2}, {b, nil, 3}, {b, nil, 3}, {b, []rlock.Option{lease}, 4}, {b, nil, 5}, {c, nil, 6}, {c, nil, 6}} {
			waits = append(waits, testlock.Join(bg, next.m, append(next.options, notPrompt)...))
			if n := w.places(); n != next.places {
				t.Errorf("waiter %d: %d places, want %d", i, n, next.places)
			}
			order = append(order, inner.Mutex(next.m).Session().ID())
		}
		st := testlock.Inspect(t, a)
		if !slices.EqualFunc(st.Queue, order, func(w rlock.Waiter, session string) bool { return w.Session == session }) {
			t.Errorf("Inspect shows another order: %+v", st.Queue)
		}
		testlock.Unlock(t, hold)
		places := map[string]bool{}
		for _, got := range waits {
			next := testlock.Granted(t, got)
			places[testlock.Inspect(t, a).Owner] = true
			testlock.Unlock(t, next)
		}
		if len(places) != 6 {
			t.Errorf("%d grants served them", len(places))
		}
		w.nothingIsLeft()
	})
}

// standing is a lock of a session behind a proxy, of which one goroutine waits with ctx; another session holds the lock. Heartbeats are hours apart.
func (w *world) standing(ctx context.Context, options ...rlock.SessionOption) (m *rlock.Mutex, hold *rlock.Hold, first <-chan testlock.Grant) {
	w.t.Helper()
	impatient := w.Net.Client(w.t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	m = w.lockOf(impatient, append(options, longLiveness)...)
	_, hold = testlock.Lock(w.t, w.lockBeside(), bg, rlock.WithLease(time.Hour)) // its end must not help
	return m, hold, testlock.Join(ctx, m, notPrompt)
}

func TestWhosePlaceWasTakenKeepsItThoughTheAnswerWasLost(t *testing.T) {
	for name, void := range map[string]bool{"and the next copy is too late": true, "": false} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *world) {
				other := w.lockBeside()
				// A short lease makes a request void that takes a second.
				m, hold, first := w.standing(bg, rlock.WithWatchdogTimeout(time.Second))
				var copies atomic.Int64
				others := make(chan struct{})
				w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
					if w.kind(*r) == "lock" {
						switch copies.Add(1) {
						case 1:
							return faultproxy.CutReply // it has taken the place
						case 2:
							<-others
							if void {
								time.Sleep(1200 * time.Millisecond)
							}
						}
					}
					return faultproxy.Pass
				})
				second, third := testlock.Join(bg, m), testlock.Join(bg, other)
				close(others)
				time.Sleep(2 * time.Second) // all copies are answered
				if n := copies.Load(); n < 2 || void && n < 3 {
					t.Errorf("%d copies", n)
				}
				testlock.Unlock(t, hold)
				testlock.Served(t, first, second, third)
				w.nothingIsLeft()
			})
		})
	}
}

// The session's first waiter is still being subscribed when the next one takes its place and is granted: nobody hears the message,
// and the heartbeat behind the subscription asks about the first one, which is over.
func TestAHeartbeatTellsOfAGrantThatItDidNotAskFor(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		m := w.lock(longLiveness)
		_, hold := testlock.Lock(t, w.lockBeside(), bg, rlock.WithLease(time.Hour)) // its end must not help
		subscribe, tell, beat := make(chan struct{}), make(chan struct{}), make(chan struct{})
		locks, beats := 0, 0
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Is("SUBSCRIBE") {
				<-subscribe
			}
			return faultproxy.Pass
		})
		w.Net.OnReply(func(r faultproxy.Request) {
			switch w.kind(r) {
			case "lock":
				if locks++; locks == 2 {
					<-tell
				}
			case "heartbeat":
				if beats++; beats == 1 {
					<-beat
				}
			}
		})
		first, second := testlock.Join(bg, m), testlock.Join(bg, m, notPrompt)
		testlock.Unlock(t, hold)
		close(subscribe)
		testlock.Settle()
		if locks != 2 || beats != 1 {
			t.Fatalf("%d requests for the lock, %d heartbeats", locks, beats)
		}
		close(tell)
		testlock.Settle()
		close(beat)
		testlock.Served(t, first, second)
	})
}

// go-redis ends the reading of an answer with the context of who asked, if it is told to. The answer is of others, too.
func TestWhoGivesUpLeavesThePlaceToTheOthers(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		other := w.lockBeside()
		m, hold, first := w.standing(bg)
		deliver, late := make(chan struct{}), false
		w.Net.OnReply(func(r faultproxy.Request) {
			if w.kind(r) == "lock" && !late {
				late = true
				<-deliver
			}
		})
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		time.AfterFunc(1100*time.Millisecond, func() { close(deliver) }) // it can't leave before
		second := testlock.Join(ctx, m)                                  // its answer is late
		third := testlock.Join(bg, other)
		testlock.WantError(t, "Lock", (<-second).Err, context.DeadlineExceeded)
		time.Sleep(100 * time.Millisecond) // as long as go-redis may read on
		testlock.Settle()
		if n := w.places(); n != 2 || !late {
			t.Errorf("%d places", n)
		}
		testlock.Unlock(t, hold)
		testlock.Served(t, first, third)
	})
}

// A copy of a request that stands already has no other place to take, and gives nobody its own.
func TestACopyThatStandsAlreadyTakesNoPlace(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		release := w.holdRaw("22222222-0000-4000-8000-000000000000:1")
		for _, c := range []struct{ owner, behind, status string }{
			{"a:1", "", "H"}, {"b:1", "", "W"}, {"a:2", "", "H"}, // W: another session is next
			{"a:1", "a:2", "H"},
		} {
			if reply := w.ask(c.owner, c.behind); reply[:1] != c.status {
				t.Errorf("%s: %s", c.owner, reply)
			}
		}
		if order := w.Client.ZRange(bg, queueKey, 0, -1).Val(); !slices.Equal(order, []string{"a:1", "b:1", "a:2"}) {
			t.Errorf("the queue is %v", order)
		}
		release("lockline:s:")
	})
}

// One of two leaves at the moment at which the place is taken, and nobody knows of that yet.
func TestOneOfTwoLeavesWhileTheirPlaceChanges(t *testing.T) {
	for name, firstLeaves := range map[string]bool{"who came first": true, "who came later": false} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *world) {
				ctx1, leave1 := context.WithCancel(bg)
				ctx2, leave2 := context.WithCancel(bg)
				defer leave1()
				defer leave2()
				m, hold, first := w.standing(ctx1)
				deliver, executed := make(chan struct{}), false
				w.Net.OnReply(func(r faultproxy.Request) {
					if w.kind(r) == "lock" && !executed {
						executed = true
						<-deliver
					}
				})
				second := testlock.Join(ctx2, m)
				if n := w.places(); n != 1 || !executed {
					t.Fatalf("%d places", n)
				}
				leave, left, stays := leave2, second, first
				if firstLeaves {
					leave, left, stays = leave1, first, second
				}
				leave()
				testlock.WantError(t, "Lock", (<-left).Err, context.Canceled)
				close(deliver)
				testlock.Unlock(t, hold)
				testlock.Served(t, stays)
				w.nothingIsLeft()
			})
		})
	}
}
