package latch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

// Proves: latch
func TestWaitReturnsAtOnceWhereNothingRuns(t *testing.T) {
	simulated(t, 1, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) {
		testlock.Must(t, ls[0].Wait(bg))
		set(t, ls[0], 1)
		countDown(t, ls[0])
		testlock.Must(t, ls[0].Wait(bg))
		if n := w.Net.Count("SUBSCRIBE"); n != 0 {
			t.Errorf("%d subscriptions for a latch that is over", n)
		}
	})
}

// Proves: latch
func TestAHundredWaitersInTwentySessionsAllWakeByOneMessage(t *testing.T) {
	simulated(t, 20, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) {
		set(t, ls[0], 2)
		done := make(chan error, 100)
		for i := range 100 {
			go func() { done <- ls[i%20].Wait(bg) }()
		}
		time.Sleep(time.Second)
		countDown(t, ls[1])
		time.Sleep(time.Second)
		if len(done) > 0 {
			t.Fatalf("Wait returned at 1: %v", <-done)
		}
		w.Net.Reset()
		countDown(t, ls[1])
		for range 100 {
			testlock.Must(t, <-done)
		}
		time.Sleep(time.Second)
		if n := w.Net.CountPushed(); n != 20 {
			t.Errorf("%d messages to 20 sessions", n)
		}
		if n := w.Net.Count("EVALSHA"); n != 1 { // waiters need no request after the message
			t.Errorf("%d requests", n)
		}
	})
}

// Proves: latch
func TestAWaiterSendsNothingWhileItSleeps(t *testing.T) {
	simulated(t, 2, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) {
		set(t, ls[0], 1)
		done := asleep(ls[1])
		before := w.Net.Count()
		time.Sleep(time.Hour) // less than a third of the lifetime
		pings, looks := int(time.Hour/(3*time.Second)), int(time.Hour/lease)
		if w.Net.Count()-before > pings+looks+1 {
			t.Errorf("%d writes in an hour, of which %d are pings", w.Net.Count()-before, pings)
		}
		countDown(t, ls[0])
		ended(t, done, nil)
	})
}

// Proves: latch
func TestALatchThatSomebodyWaitsForDoesNotExpire(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		l := latch.New(s, "x", latch.WithLifetime(time.Minute))
		set(t, l, 1)
		done := wait(bg, latchesOf(t, w.Client, 1)[0]) // the lifetime of this Latch is a day
		time.Sleep(5 * time.Minute)
		wantCount(t, l, 1)
		countDown(t, l)
		ended(t, done, nil)
	})
}

// Proves: latch
func TestALatchThatNobodyUsesExpiresAfterItsLifetime(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		l := latch.New(s, "x", latch.WithLifetime(time.Hour))
		set(t, l, 3)
		time.Sleep(59 * time.Minute)
		countDown(t, l) // prolongs the life of the hash
		time.Sleep(59 * time.Minute)
		if st := inspect(t, l); st.Count != 2 { // Inspect does not prolong it
			t.Errorf("%+v", st)
		}
		time.Sleep(2 * time.Minute)
		if w.Exists(key) {
			t.Error("it is still there")
		}
	})
}

// Proves: latch
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
					wantDeleted(t, l, true)
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

// Proves: latch
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

// Proves: latch
func TestAWaiterOfAnEarlierRunReturnsThoughTheLatchWasSetAnew(t *testing.T) {
	for how, want := range map[string]error{"counted": nil, "deleted": latch.ErrDeleted} {
		t.Run(how, func(t *testing.T) {
			proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
				set(t, other, 1)
				done := asleep(l)
				w.Net.Refuse(true) // so that no message arrives
				if want == nil {
					countDown(t, other)
				} else {
					wantDeleted(t, other, true)
				}
				set(t, other, 1)
				countDown(t, other)
				set(t, other, 1)
				w.Net.Refuse(false)
				ended(t, done, want)
				wantCount(t, other, 1)
			})
		})
	}
}

// Proves: latch
func TestAWaiterWhoseSubscriptionBrokeLooksAgain(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
		set(t, other, 1)
		done := asleep(l)
		w.Net.Refuse(true)
		countDown(t, other)
		w.Net.Refuse(false)
		ended(t, done, nil)
	})
}

// Proves: latch
func TestAWaiterOfARunThatRedisForgotIsTold(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
		for _, anew := range []bool{false, true} {
			set(t, other, 1)
			done := asleep(l)
			w.FlushAll()
			if anew {
				set(t, other, 1)
			}
			w.Net.CutAll()
			ended(t, done, latch.ErrGone)
		}
	})
}

// Proves: latch
func TestAWaiterOnAClusterLooksNowAndThen(t *testing.T) {
	// A message between two nodes of a Cluster can be lost, so a waiter also reads the count at times. A
	// client of unknown type is treated like the client of a Cluster.
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, several{w.Client})
		l := latch.New(s, "x")
		set(t, l, 1)
		done := asleep(l)
		for _, field := range []string{"n", "r", "k"} { // the run has ended without a message
			w.HDel(key, field)
		}
		start := time.Now()
		if err := <-done; err == nil {
			t.Error("it does not know how its run ended")
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// several hides the type of its client.
type several struct{ *redis.Client }

// Proves: latch, messages
func TestAForgedMessageEndsNoWait(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		setter, l := latch.New(a, "x"), latch.New(b, "x")
		set(t, setter, 1)
		done := asleep(l)
		messages := []string{"D x", "D", "Z", "Z ", "", "Z " + key, "L", "L x 0", "nonsense"}
		for n := range 20 { // the ids of sessions are not secret
			messages = append(messages, fmt.Sprintf("Z %s:%d", a.ID(), n), fmt.Sprintf("D %s:%d ", a.ID(), n))
		}
		for _, message := range messages {
			w.Publish(key, message)
		}
		time.Sleep(time.Second)
		if len(done) > 0 {
			t.Fatalf("ended by a message: %v", <-done)
		}
		countDown(t, setter)
		ended(t, done, nil)
	})
}

// Proves: latch
func TestWaitersLeaveNoSubscription(t *testing.T) {
	simulated(t, 1, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) {
		set(t, ls[0], 1)
		var waiters []<-chan error
		ctx, cancel := context.WithCancel(bg)
		for range 10 {
			waiters = append(waiters, wait(ctx, ls[0]))
		}
		time.Sleep(time.Second)
		if n := w.PubSubNumSub(key)[key]; n != 1 {
			t.Errorf("ten waiters of a session have %d subscriptions", n)
		}
		cancel()
		for _, done := range waiters {
			ended(t, done, context.Canceled)
		}
		testlock.NoSubscriptions(t, w.Client)
	})
}

// Proves: latch
func TestWaitEndsWithItsSession(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		l := latch.New(s, "x")
		set(t, l, 1)
		done := asleep(l)
		testlock.Must(t, s.Close())
		ended(t, done, rlock.ErrClosed)
		for i, err := range everyMethod(bg, l) {
			testlock.WantError(t, fmt.Sprint("method ", i), err, rlock.ErrClosed)
		}
	})
}

// If Redis answers, the error of a wait whose context ends does not mention Redis. In an outage, it says what
// failed.
func TestAWaitThatItsContextEndsInAnOutageSaysWhatFailed(t *testing.T) {
	simulated(t, 1, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) {
		set(t, ls[0], 1)
		ends := func(within, want string, call func(ctx context.Context) error) {
			t.Helper()
			d, err := time.ParseDuration(within)
			testlock.Must(t, err)
			ctx, cancel := context.WithTimeout(bg, d)
			defer cancel()
			err = call(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) ||
				strings.Count(err.Error(), "lockline: ") != 1 {
				t.Errorf("%v", err)
			}
		}
		w.Net.Freeze()
		const silent = `latch "x": context deadline exceeded; no answer from Redis within `
		ends("1s", silent+"1s", ls[0].Wait)
		ends("1s", silent+"1s", func(ctx context.Context) error {
			_, err := ls[0].Count(ctx)
			return err
		})
		w.Net.Thaw()
		w.Net.Refuse(true)
		w.Net.CutAll()
		ends("3s", `latch "x": context deadline exceeded; the last request failed: dial `, ls[0].Wait)
		w.Net.Refuse(false)
	})
}
