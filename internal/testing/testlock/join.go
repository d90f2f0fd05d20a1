package testlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/rlock"
)

// Join calls Go in fake time, and then Settle. If the call of Lock does not get l, it is queued and its
// session has a subscription when Join returns.
func Join(ctx context.Context, l rlock.Locker, options ...rlock.Option) <-chan Grant {
	got := Go(ctx, l, options...)
	Settle()
	return got
}

// Settle waits, in fake time, until all goroutines are blocked. It sleeps for a moment first, because a
// goroutine may wait for a moment in order to send its request together with others.
func Settle() {
	time.Sleep(5 * time.Millisecond)
	synctest.Wait()
}

// Waiting calls Settle, and then fails the test if one of these calls has returned. The test must be in fake
// time.
func Waiting(t testing.TB, what string, calls ...<-chan Grant) {
	t.Helper()
	Settle()
	for i, got := range calls {
		if len(got) > 0 {
			t.Errorf("%s: number %d does not wait", what, i)
		}
	}
}

// Served waits for these calls, one after another, and unlocks each Hold before it waits for the next call.
// If the calls are for the same lock, they must be served in this order. An error stops the test.
func Served(t testing.TB, calls ...<-chan Grant) {
	t.Helper()
	for _, got := range calls {
		Unlock(t, Granted(t, got))
	}
}
