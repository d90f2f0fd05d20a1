package engine_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

var bg = context.Background()

// The request that extends the lease reaches Redis before the lease ends. Its reply arrives after the
// deadline of the outer hold. The caller's context has not ended then.
func TestANestedHoldThatEndsWhileItsLeaseIsMadeLongerIsNotReturned(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m, other := rwlock.New(testlock.NewSession(t, w.Client), "x"),
			rwlock.New(testlock.NewSession(t, w.Client), "x")
		_, warm := testlock.Lock(t, m, bg)
		// Now the server has the script, so the next Extend is a single request.
		testlock.Must(t, warm.Extend(bg, time.Minute))
		testlock.Unlock(t, warm)
		for _, nested := range []rlock.Locker{m, m.RLocker()} {
			ctx, outer := testlock.Lock(t, m, testlock.Bounded(t), rlock.WithLease(time.Second))
			time.Sleep(900 * time.Millisecond)
			w.Net.SetDelay(60 * time.Millisecond)
			_, hold, err := nested.Lock(context.WithoutCancel(ctx), rlock.WithLease(10*time.Second))
			w.Net.SetDelay(0)
			testlock.WantError(t, "the nested Lock", err, rlock.ErrLost)
			if hold != nil {
				t.Errorf("it returns a hold, of which Err says %v", hold.Err())
			}
			runtime.KeepAlive(hold)
			testlock.WantError(t, "the outer Unlock", outer.Unlock(bg), rlock.ErrLost)
			synctest.Wait()
			testlock.Works(t, other) // the extended lease is released
		}
	})
}
