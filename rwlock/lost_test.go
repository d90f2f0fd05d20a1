package rwlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/permit"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
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

// A reader asks Redis though its session reads already, and a reply is lost. The next copy is told that the session's grant goes on. But the lost one
// may have left a request behind that is granted later, to nobody: so the attempt is ended in Redis.
func TestAnAttemptThatJoinsIsEndedIfACopyOfItsRequestMayStillCome(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	m := locksOf(t, proxy.Client(t), 1, rlock.WithStreak(0))[0]
	_, first := lock(t, bg, m.RLocker())
	var ended, lost atomic.Int64
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		switch r.Script() {
		case permit.Scripts()["acquire"].Digest():
			if lost.Add(1) == 1 {
				return faultproxy.CutReply
			}
		case permit.Scripts()["release"].Digest():
			ended.Add(1)
		}
		return faultproxy.Pass
	})
	_, second := lock(t, bg, m.RLocker())
	if lost.Load() != 2 {
		t.Fatalf("%d requests were sent, want a lost one and its copy", lost.Load())
	}
	testlock.Eventually(t, "the attempt is ended", func() bool { return ended.Load() == 1 })
	unlock(t, second)
	unlock(t, first)
}

// A writer whose request was granted twice tells the last token of its first grant. Of the second, all count as used then.
func TestAReleaseGivesBackNoTokensOfAFormerGrant(t *testing.T) {
	t.Parallel()
	rdb, locks := open(t, 1)
	_, w := lock(t, bg, locks[0])
	token := w.Token()
	keys := []string{"lockline:w:{x}", "lockline:w:{x}:t", "lockline:w:{x}:q", "lockline:w:{x}:a", "lockline:w:{x}:d", "lockline:w:{x}:h"}
	owner := inspect(t, locks[0]).Writer.Owner
	testlock.Must(t, rdb.Eval(bg, permit.Scripts()["release"].Text(), keys, owner, "", "nobody:s:", "15000", "0", token-500).Err())
	if last, err := rdb.HGet(bg, keys[1], "t").Int64(); err != nil || last < token {
		t.Errorf("the last token is %d, %v, below %d, which was used", last, err, token)
	}
	_ = w.Unlock(bg)
}
