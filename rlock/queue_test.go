package rlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// heldByAnother runs a test in fake time, while another process holds lock x.
func heldByAnother(t *testing.T, test func(t *testing.T, w *testlock.Wire, hold *rlock.Hold)) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, beside(t, w)), "x"), bg)
		test(t, w, hold)
	})
}

func wantInQueue(t *testing.T, w *testlock.Wire, n int) {
	t.Helper()
	settle()
	if got := inQueue(w); got != n {
		t.Fatalf("%d stand in the queue, want %d", got, n)
	}
}

// A session has one place in the queue for all of its waiters.
func TestTheNextGoroutineInheritsThePlaceOfOneThatGivesUp(t *testing.T) {
	heldByAnother(t, func(t *testing.T, w *testlock.Wire, hold *rlock.Hold) {
		ours, theirs := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		ctx, cancel := context.WithCancel(bg)
		first := testlock.Go(ctx, rlock.New(ours, "x"))
		settle()
		second := testlock.Go(bg, rlock.New(ours, "x"))
		wantInQueue(t, w, 1)
		other := testlock.Go(bg, rlock.New(theirs, "x"))
		wantInQueue(t, w, 2)
		cancel()
		if got := <-first; got.Err == nil {
			t.Fatal("it has the lock")
		}
		wantInQueue(t, w, 2)
		testlock.Unlock(t, hold)
		mine := testlock.Granted(t, second)
		settle()
		if len(other) > 0 {
			t.Error("the other session, which came later, has it, too")
		}
		testlock.Unlock(t, mine)
		testlock.Unlock(t, testlock.Granted(t, other))
	})
}

func TestAnOutageBehindTheRefusalOnlyLengthensTheWait(t *testing.T) {
	heldByAnother(t, func(t *testing.T, w *testlock.Wire, hold *rlock.Hold) {
		dropped := 0
		const outage = 20 // requests; each is sent at most four times
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if !stands(r) || dropped > outage {
				return faultproxy.Pass
			}
			dropped++
			return faultproxy.DropAndCut
		})
		got := testlock.Go(bg, rlock.New(testlock.NewSession(t, w.Client), "x"))
		testlock.Eventually(t, "the outage is over", func() bool { return inQueue(w) == 1 })
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, got))
	})
}

// The reply that the waiter is queued is lost. The client waits for it for longer than the first lease of a
// lock that is handed over, so the waiter must not wait for the reply.
func TestAWaiterThatIsToldOfItsGrantDoesNotWaitForTheAnswer(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		net := faultproxy.InMemory(t, w.Dial)
		s := testlock.NewSession(t, net.Client(t))
		other, waiter := fairlock.New(testlock.NewSession(t, w.Client), "x"), fairlock.New(s, "x")
		_, hold := testlock.Lock(t, other, bg)
		first := testlock.Join(bg, waiter) // so that its session subscribes
		testlock.Unlock(t, hold)
		mine := testlock.Granted(t, first)
		got := testlock.Join(bg, other)
		testlock.Unlock(t, mine)
		hold = testlock.Granted(t, got)

		testlock.Silence(t, s, net)
		net.OnRequest(onFirst(faultproxy.SwallowReply, stands))
		got = testlock.Join(bg, waiter)
		behind := testlock.Join(bg, fairlock.New(testlock.NewSession(t, w.Client), "x"))
		began := time.Now()
		testlock.Unlock(t, hold)
		mine = testlock.Granted(t, got)
		if took := time.Since(began); took > time.Second {
			t.Errorf("granted after %v", took)
		}
		testlock.Unlock(t, mine)
		last := testlock.Granted(t, behind)
		testlock.WantAfter(t, last, mine.Token())
		testlock.Unlock(t, last)
	})
}

func TestAFixedLeaseIsMadeWholeOnceAnOutageIsOver(t *testing.T) {
	heldByAnother(t, func(t *testing.T, w *testlock.Wire, hold *rlock.Hold) {
		got := testlock.Go(bg, rlock.New(testlock.NewSession(t, w.Client), "x"), rlock.WithLease(time.Minute))
		wantInQueue(t, w, 1)
		dropped := 0
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if !isScript(r, "renew") || dropped == 5 {
				return faultproxy.Pass
			}
			dropped++
			return faultproxy.DropAndCut
		})
		testlock.Unlock(t, hold)
		mine := testlock.Granted(t, got)
		time.Sleep(5 * time.Second)
		if left := time.Until(mine.Deadline()); left < 50*time.Second || dropped < 5 {
			t.Errorf("%v are left of a minute; %d requests were lost", left, dropped)
		}
		testlock.Unlock(t, mine)
	})
}

func TestALateCopyOfAnAttemptThatWentMissingTakesNothing(t *testing.T) {
	heldByAnother(t, func(t *testing.T, w *testlock.Wire, hold *rlock.Hold) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		w.Net.OnRequest(onFirst(faultproxy.Hold, stands))
		got := testlock.Go(bg, m)
		time.Sleep(time.Second)
		wantInQueue(t, w, 1) // added by the second copy of the request
		for _, key := range []string{queueKey, lockKey + ":w"} {
			w.Del(key)
		}
		w.Net.CutAll() // so that the session subscribes again, and sends a request
		time.Sleep(time.Second)
		wantInQueue(t, w, 1) // the waiter is queued again
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, got))
		late := w.Net.Held()
		if len(late) != 1 {
			t.Fatalf("%d copies are late", len(late))
		}
		testlock.Must(t, w.Net.Release(late[0]))
		testlock.Works(t, m)
		if w.HGet(lockKey, "owner") != "" {
			t.Error("an attempt that is over has the lock")
		}
	})
}

// While a slot moves, a session may send a release without the keys of the queue. Such a release must not
// free a lock for which others wait.
func TestAReleaseWithoutTheQueueSaysThatItNeedsIt(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		run := func(name string, keys int, args ...any) (string, error) {
			all := []string{lockKey, queueKey, lockKey + ":w"}
			return redis.NewScript(script.Text("lock/"+name)).Eval(bg, w.Client, all[:keys], args...).Text()
		}
		ask := func(owner string) {
			t.Helper()
			_, err := run("acquire", 3, owner, 1, int64(1)<<52, 30000, "", 60000, 30000,
				"lockline:s:", "nonce", 0)
			testlock.Must(t, err)
		}
		ask("h:1")
		if reply, err := run("release", 1, "h:1", "", "lockline:s:", 60000, 0, 0); err != nil ||
			reply != "R" {
			t.Errorf("of a lock that nobody waits for: %q, %v", reply, err)
		}
		ask("h:2")
		ask("a:1")
		ask("b:1")
		w.HDel(lockKey, "owner") // as if its lease had ended
		ask("a:1")               // a second copy of the request takes the lock, and b waits
		for range 2 {
			reply, err := run("release", 1, "a:1", "", "lockline:s:", 60000, 0, 0)
			if err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
				t.Errorf("%q, %v", reply, err)
			}
		}
		if reply, err := run("release", 3, "a:1", "", "lockline:s:", 60000, 0, 0); err != nil ||
			!strings.HasPrefix(reply, "R b:1 ") {
			t.Errorf("with it: %q, %v", reply, err)
		}
	})
}
