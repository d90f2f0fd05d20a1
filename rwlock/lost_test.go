package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

// A writer's Unlock brings the grant of a reader of the same session in its reply. If that is lost, the copy
// that is sent next finds the writer gone and serves nobody.
func TestAWaiterGetsItsGrantIfTheReplyThatToldOfItIsLost(t *testing.T) {
	simulated(t, 1, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
		for _, lost := range []bool{false, true} { // first so that the server knows the scripts
			hold := testlock.Take(t, locks[0])
			waits := testlock.Join(bg, locks[0].RLocker())
			wire.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				if lost && testlock.Script(r.Script()) == "release" {
					lost = false
					return faultproxy.CutReply
				}
				return faultproxy.Pass
			})
			start := time.Now()
			testlock.Unlock(t, hold)
			testlock.Served(t, waits)
			if took := time.Since(start); lost || took > time.Minute { // of hours
				t.Errorf("it took %v", took)
			}
		}
	}, rlock.WithHandover(0), rlock.WithWaiterTimeout(time.Hour))
}

// The first grant is over before any answer arrives, and the next copy of the request is granted anew, under
// the same owner field.
func TestAnAttemptThatIsGrantedAgainHoldsWhatItWasGranted(t *testing.T) {
	for what, side := range map[string]func(*rwlock.RWMutex) rlock.Locker{
		"to read": (*rwlock.RWMutex).RLocker, "to write": func(l *rwlock.RWMutex) rlock.Locker { return l },
	} {
		simulated(t, 1, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
			patient := wire.Net.Client(t, func(o *redis.Options) { o.ReadTimeout = 700 * time.Millisecond })
			l := testlock.Warm(t, locksOf(t, patient, 1)[0]) // so that the server knows the scripts
			copies := 0
			wire.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				if testlock.Script(r.Script()) == "acquire" {
					if copies++; copies == 1 {
						return faultproxy.SwallowReply
					}
					time.Sleep(400 * time.Millisecond)
				}
				return faultproxy.Pass
			})
			_, hold := testlock.Lock(t, side(l), bg, rlock.WithLease(time.Second))
			if st := testlock.Inspect(t, locks[0]); copies != 2 || !st.Held || hold.Err() != nil {
				t.Errorf("%s: it holds (%v), after %d copies of its request, and Redis has %+v",
					what, hold.Err(), copies, st)
			}
			testlock.Unlock(t, hold)
		})
	}
}

// A reader asks Redis though its session reads already, and a reply is lost. The next copy is told that the
// session's grant goes on. But the lost one may have left a request behind that is granted later, to nobody:
// so the attempt is ended in Redis.
func TestAnAttemptThatJoinsIsEndedIfACopyOfItsRequestMayStillCome(t *testing.T) {
	simulated(t, 1, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
		// So that the server knows the scripts.
		first := testlock.Take(t, testlock.Warm(t, locks[0]).RLocker())
		asked, ended := 0, 0
		wire.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			switch testlock.Script(r.Script()) {
			case "acquire":
				if asked++; asked == 1 {
					return faultproxy.CutReply
				}
			case "release":
				ended++
			}
			return faultproxy.Pass
		})
		second := testlock.Take(t, locks[0].RLocker())
		testlock.Settle()
		if asked != 2 || ended != 1 {
			t.Errorf("%d requests were sent, want a lost one and its copy; %d attempts are ended, want one",
				asked, ended)
		}
		testlock.Unlock(t, second, first)
	}, rlock.WithHandover(0))
}

// A writer whose request was granted twice tells the last token of its first grant. Of the second, all count
// as used then.
func TestAReleaseGivesBackNoTokensOfAFormerGrant(t *testing.T) {
	simulated(t, 1, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
		rdb := wire.Client
		w := testlock.Take(t, locks[0])
		token := w.Token()
		keys := []string{"lockline:w:{x}", "lockline:w:{x}:q", "lockline:w:{x}:w", "lockline:w:{x}:h"}
		owner := testlock.Inspect(t, locks[0]).Owner
		testlock.Must(t, rdb.Eval(bg, script.Text("lock/release"), keys,
			owner, "", "nobody:s:", "15000", "0", token-500).Err())
		if last, err := rdb.HGet(bg, keys[0], "token").Int64(); err != nil || last < token {
			t.Errorf("the last token is %d, %v, below %d, which was used", last, err, token)
		}
		_ = w.Unlock(bg)
	})
}

// A loss ends the contexts of all holds of a grant, with ErrLost as the cause. If the outer one ends first, a
// nested one may be ended by that, and its cause matches context.Canceled, too.
func TestTheCauseOfALossIsTheSameForNestedHolds(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		rw := rwlock.New(a, "x")
		outer, h, err := rw.RLock(context.Background())
		testlock.Must(t, err)
		holds := []*rlock.Hold{h}
		var inner []context.Context
		for range 300 {
			ctx, h, err := rw.RLock(outer)
			testlock.Must(t, err)
			inner, holds = append(inner, ctx), append(holds, h)
		}
		if _, err := rwlock.New(b, "x").ForceUnlockReaders(context.Background()); err != nil {
			t.Fatal(err)
		}
		other := 0
		for _, ctx := range inner {
			<-ctx.Done()
			if got := context.Cause(ctx); got != rlock.ErrLost {
				if other++; other == 1 {
					t.Errorf("cause %v (%T)", got, got)
				}
			}
		}
		if other > 0 {
			t.Errorf("of %d of %d", other, len(inner))
		}
		for _, h := range holds {
			_ = h.Unlock(context.Background())
		}
	})
}
