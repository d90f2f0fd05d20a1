package rlock_test

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// A managed Redis fails over behind one address. The old server goes on running and keeps its connections. So
// a subscription may stay there, although nothing is published there any more (see issues 790 and 2229 of
// go-redis, and 3431 of spring-data-redis).
func TestAWaiterIsServedThoughItsSubscriptionStayedAtAServerThatIsNotTheLocksAnyMore(t *testing.T) {
	kinds := maps.Clone(queued)
	kinds["redisson"] = func(s *rlock.Session) rlock.Locker { return redisson.New(s, "x") }
	for kind, newLock := range kinds {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, old *testlock.Wire) {
				after := testlock.NewWire(t)
				log := &testlock.Log{}
				stays, newcomer := testlock.NewSession(t, old.Client, rlock.WithLogger(log.Logger())),
					testlock.NewSession(t, after.Client)
				moveButForItsSubscription(t, stays, old, after)

				// The next waiter of this session queues at the new server, but the subscription is still at
				// the old one. The next heartbeat finds this, and the session subscribes again.
				_, first := testlock.Lock(t, newLock(newcomer), bg)
				got := testlock.Go(bg, newLock(stays))
				time.Sleep(7 * time.Second)
				testlock.Unlock(t, first)
				start := time.Now()
				testlock.Unlock(t, testlock.Granted(t, got))
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("served after %v", took)
				}
				if n := log.Count("lockline: subscription gets a new connection"); n != 1 {
					t.Errorf("logged %d times", n)
				}
			})
		})
	}
}

// moveButForItsSubscription makes s send its requests to the server after from now on, instead of the server
// old. The subscription of s stays at old.
func moveButForItsSubscription(t *testing.T, s *rlock.Session, old, after *testlock.Wire) {
	t.Helper()
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, old.Client), "its own"), bg)
	waits, leave := context.WithCancel(bg)
	got := testlock.Go(waits, rlock.New(s, "its own"))
	time.Sleep(time.Second)
	leave()
	testlock.WantError(t, "the wait", testlock.Receive(t, "its end", got).Err, context.Canceled)
	testlock.Unlock(t, hold)
	old.Net.LeadTo(after.Dial)
	old.Net.CutRequests()
}

// moved runs a test with a session whose subscription has stayed at the old server. The test must make the
// session notice this once.
func moved(t *testing.T, test func(t *testing.T, stays, newcomer *rlock.Session)) {
	testlock.Simulated(t, func(t *testing.T, old *testlock.Wire) {
		after := testlock.NewWire(t)
		log := &testlock.Log{}
		stays, newcomer := testlock.NewSession(t, old.Client, rlock.WithLogger(log.Logger())),
			testlock.NewSession(t, after.Client)
		moveButForItsSubscription(t, stays, old, after)
		test(t, stays, newcomer)
		if n := log.Count("lockline: subscription gets a new connection"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestAWaiterOfALatchIsToldThoughItsSubscriptionStayedAtAnotherServer(t *testing.T) {
	moved(t, func(t *testing.T, stays, newcomer *rlock.Session) {
		ours, theirs := latch.New(stays, "x"), latch.New(newcomer, "x")
		_, err := theirs.TrySet(bg, 1)
		testlock.Must(t, err)
		awake, others := make(chan error, 1), make(chan error, 1)
		go func() { awake <- ours.Wait(bg) }()
		go func() { others <- theirs.Wait(bg) }() // so that the latch's channel has a subscriber
		time.Sleep(31 * time.Second)              // each reads the count once in a lease
		start := time.Now()
		testlock.Must(t, theirs.CountDown(bg))
		testlock.Must(t, testlock.Receive(t, "awake", awake))
		testlock.Must(t, testlock.Receive(t, "awake", others))
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("told after %v", took)
		}
	})
}

func TestAnObserverIsToldThoughItsSubscriptionStayedAtAnotherServer(t *testing.T) {
	moved(t, func(t *testing.T, stays, newcomer *rlock.Session) {
		seen := make(chan string, 10)
		observing, end := context.WithCancel(bg)
		defer end()
		go func() {
			defer close(seen)
			for l := range election.New(stays, "y").Observe(observing) {
				seen <- l.Value
			}
		}()
		time.Sleep(31 * time.Second)
		start := time.Now()
		_, leader, err := election.New(newcomer, "y").Campaign(bg, "me")
		testlock.Must(t, err)
		value := testlock.Receive(t, "none", seen) + testlock.Receive(t, "the leader", seen)
		if value != "me" {
			t.Errorf("it saw %q", value)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("told after %v", took)
		}
		testlock.Must(t, leader.Resign(bg))
		end()
		for range seen {
		}
	})
}

// The old server stays a master, too, and keeps the pooled connections and the subscription of a session.
// Both servers answer as if they had the lock, so the session cannot notice the move. Only a new connection
// leads to the new server.
func TestASessionStaysAtAnOldMasterUntilItsConnectionsHaveReachedConnMaxLifetime(t *testing.T) {
	const life = time.Minute
	for _, limited := range []bool{false, true} {
		testlock.Simulated(t, func(t *testing.T, old *testlock.Wire) {
			after := testlock.NewWire(t)
			log := &testlock.Log{}
			stays := testlock.NewSession(t, old.Net.Client(t, func(o *redis.Options) {
				if limited {
					o.ConnMaxLifetime = life
				}
			}), rlock.WithLogger(log.Logger()))
			former := testlock.NewSession(t, faultproxy.InMemory(t, old.Dial).Client(t)) // does not move
			newcomer := testlock.NewSession(t, after.Client)
			_, first := testlock.Lock(t, rlock.New(former, "x"), bg)
			got := testlock.Go(bg, rlock.New(stays, "x"))
			time.Sleep(time.Second)
			old.Net.LeadTo(after.Dial)
			_, hold := testlock.Lock(t, rlock.New(newcomer, "x"), bg)
			time.Sleep(life + 7*time.Second) // heartbeats come every 6 s
			if !limited {
				time.Sleep(time.Hour)
				if n := len(old.PubSubChannels("*")); n != 1 || log.String() != "" {
					t.Errorf("%d subscriptions at the old master, logged: %s", n, log)
				}
				testlock.Unlock(t, first)
				testlock.Unlock(t, testlock.Granted(t, got), hold) // both hold the lock
				return
			}
			start := time.Now()
			testlock.Unlock(t, hold)
			testlock.Unlock(t, testlock.Granted(t, got))
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("served by the new master after %v", took)
			}
			if n := log.Count("lockline: subscription gets a new connection"); n != 1 {
				t.Errorf("logged %d times", n)
			}
			testlock.Unlock(t, first)
		})
	}
}

// The log lines about a subscription name the server, because each session of a RedLock has another server.
func TestALostSubscriptionIsLoggedWithTheSessionsServer(t *testing.T) {
	testlock.InFakeTime(t, func(t *testing.T) {
		for range 2 {
			w := testlock.NewWire(t)
			log := &testlock.Log{}
			s := testlock.NewSession(t, w.Client, rlock.WithLogger(log.Logger()))
			_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, w.Client), "x"), bg)
			got := testlock.Go(bg, rlock.New(s, "x"))
			time.Sleep(time.Second)
			w.Restart()
			time.Sleep(2 * time.Second)
			_ = hold.Unlock(bg)
			testlock.Unlock(t, testlock.Granted(t, got))
			for _, words := range []string{"lockline: subscription lost", "lockline: subscription restored"} {
				line := log.Lines(words)
				if len(line) != 1 || !strings.Contains(line[0], "server="+w.Client.Options().Addr) {
					t.Errorf("%s: %q", words, line)
				}
			}
		}
	})
}

// A tryAgain is the error of a Cluster for a request of several keys, of which only some have moved.
type tryAgain struct{}

func (tryAgain) Error() string { return "TRYAGAIN Multiple keys request during rehashing of slot" }
func (tryAgain) RedisError()   {}

// A Cluster refuses a request if only some of its keys have moved. An Unlock then sends its request again in
// the background. Once the slot has moved, this request must name all keys.
func TestARepeatedReleaseFreesTheLockSoonAfterItsSlotHasMoved(t *testing.T) {
	for kind, newLock := range queued {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				var moving atomic.Bool
				rdb := w.Net.Client(t)
				rdb.AddHook(testlock.Around(func(cmds []redis.Cmder, next func() error) error {
					for _, cmd := range cmds {
						isScript := strings.HasPrefix(cmd.Name(), "eval")
						if moving.Load() && isScript && cmd.Args()[2] != 1 {
							cmd.SetErr(tryAgain{})
							return tryAgain{}
						}
					}
					return next()
				}))
				s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(time.Minute))
				_, hold := testlock.Lock(t, newLock(s), bg)
				got := testlock.Join(bg, newLock(testlock.NewSession(t, w.Client)))
				moving.Store(true)
				time.AfterFunc(200*time.Millisecond, func() { moving.Store(false) })
				if err := hold.Unlock(bg); err == nil {
					t.Error("Unlock got through while its keys moved")
				}
				start := time.Now()
				next := testlock.Granted(t, got)
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("the waiter was served after %v", took)
				}
				testlock.Unlock(t, next)
			})
		})
	}
}
