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

// The reply to a writer's release has the grant of a reader of the same session. If this reply is lost, the
// next copy of the release finds that the writer is gone, and its reply has no grant. The reader must get its
// grant nevertheless.
func TestAWaiterGetsItsGrantIfTheReplyThatToldOfItIsLost(t *testing.T) {
	simulated(t, 1, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
		for _, lost := range []bool{false, true} { // the first round only makes the server get the scripts
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
			if took := time.Since(start); lost || took > time.Minute { // much earlier than the next heartbeat
				t.Errorf("it took %v", took)
			}
		}
	}, rlock.WithHandover(0), rlock.WithWaiterTimeout(time.Hour))
}

// The reply to the first grant is lost, and its lease ends. Then the next copy of the request is granted
// again, with the same owner field. The hold must be that of the second grant.
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

// A reader sends a request although its session already reads, and a reply is lost. The reply to the next
// copy says that the session's grant was extended. But the first copy may be granted later, when nobody needs
// it. So the session must release the attempt in Redis.
func TestAnAttemptThatJoinsIsEndedIfACopyOfItsRequestMayStillCome(t *testing.T) {
	simulated(t, 1, func(t *testing.T, wire *testlock.Wire, locks []*rwlock.RWMutex) {
		// Warm makes the server get the scripts.
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

// A writer's request was granted twice. Its release has the last token of the first grant. So all tokens of
// the second grant must count as used.
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

// A loss ends the contexts of all holds of a grant, and their cause is ErrLost. This must also hold for a
// nested context that ends because its outer context has ended first.
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
