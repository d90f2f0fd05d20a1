package rwlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/permit"
	"github.com/lockline/lockline/internal/testlock"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

// A writer's Unlock brings the grant of a reader of the same session in its reply. If that is lost, the copy that is sent next finds the
// writer gone and serves nobody.
func TestAWaiterGetsItsGrantIfTheReplyThatToldOfItIsLost(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	rdb := proxy.Client(t)
	locks := locksOf(t, rdb, 1, rlock.WithStreak(0), rlock.WithLiveness(time.Hour))
	use := func(before func()) {
		_, w := lock(t, bg, locks[0])
		waiting := begin(bg, locks[0].RLocker())
		queue(t, locks[0], 1)
		before()
		unlock(t, w)
		unlock(t, await(t, waiting).hold)
	}
	use(func() { // so that the server knows the scripts, and the session listens and has no reason to ask again
		testlock.Eventually(t, "it listens", func() bool { return len(rdb.PubSubChannels(bg, "*").Val()) > 0 })
	})
	use(func() {
		var once atomic.Bool
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Script() == permit.Scripts()["release"].Digest() && !once.Swap(true) {
				return faultproxy.CutReply
			}
			return faultproxy.Pass
		})
	})
}

// The first grant is over before any answer arrives, and the next copy of the request is granted anew, under the same owner field.
func TestAnAttemptThatIsGrantedAgainHoldsWhatItWasGranted(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	m := locksOf(t, proxy.Client(t, func(o *redis.Options) { o.ReadTimeout = 700 * time.Millisecond }), 1)[0]
	direct := locksOf(t, server.Client(t), 1)[0]
	_, w := lock(t, bg, m) // so that the server knows the scripts
	unlock(t, w)
	for what, l := range map[string]rlock.Locker{"to read": m.RLocker(), "to write": m} {
		held := func(st rwlock.State) bool { return st.Writer != nil || len(st.Readers) > 0 }
		var copies atomic.Int64
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if r.Script() != permit.Scripts()["acquire"].Digest() {
				return faultproxy.Pass
			}
			if copies.Add(1) == 1 {
				return faultproxy.SwallowReply
			}
			for deadline := time.Now().Add(testlock.Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if st, err := direct.Inspect(bg); err == nil && !held(st) {
					break
				}
			}
			return faultproxy.Pass
		})
		_, hold := lock(t, bg, l, rlock.WithLease(time.Second))
		if st := inspect(t, direct); !held(st) && hold.Err() == nil {
			t.Errorf("%s: it holds, after %d copies of its request, and Redis knows nothing of it: %+v", what, copies.Load(), st)
		}
		_ = hold.Unlock(bg)
		proxy.OnRequest(nil)
	}
}
