package testlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/rlock"
)

// Join calls Go in fake time, and then Settle. So if the call cannot get l, it is in the queue and has a
// subscription when Join returns.
func Join(ctx context.Context, l rlock.Locker, options ...rlock.Option) <-chan Grant {
	got := Go(ctx, l, options...)
	Settle()
	return got
}

// Settle waits, in fake time, until all goroutines are blocked. It waits for a moment first, because a
// goroutine may wait for others in order to send a request together.
func Settle() {
	time.Sleep(5 * time.Millisecond)
	synctest.Wait()
}

// Waiting fails the test if one of these calls has returned. The test must be in fake time.
func Waiting(t testing.TB, what string, calls ...<-chan Grant) {
	t.Helper()
	Settle()
	for i, got := range calls {
		if len(got) > 0 {
			t.Errorf("%s: number %d does not wait", what, i)
		}
	}
}

// Served waits for these calls, one after another, and unlocks each before it waits for the next. If they
// need the same lock, they must be served in this order.
func Served(t testing.TB, calls ...<-chan Grant) {
	t.Helper()
	for _, got := range calls {
		Unlock(t, Granted(t, got))
	}
}
