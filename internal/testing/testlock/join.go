package testlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/rlock"
)

// Join is Go for fake time. When it returns everything is at rest: a call that can't have l stands in the
// queue, and listens.
func Join(ctx context.Context, l rlock.Locker, options ...rlock.Option) <-chan Grant {
	got := Go(ctx, l, options...)
	Settle()
	return got
}

// Settle lets what was begun come to rest, in fake time: also calls that wait for a moment for others to ask
// with.
func Settle() {
	time.Sleep(5 * time.Millisecond)
	synctest.Wait()
}

// Waiting fails the test, which is in fake time, if one of these calls has returned.
func Waiting(t testing.TB, what string, calls ...<-chan Grant) {
	t.Helper()
	Settle()
	for i, got := range calls {
		if len(got) > 0 {
			t.Errorf("%s: number %d does not wait", what, i)
		}
	}
}

// Served waits for these calls, and unlocks each before the next one: where they need the same lock, that is
// their order.
func Served(t testing.TB, calls ...<-chan Grant) {
	t.Helper()
	for _, got := range calls {
		Unlock(t, Granted(t, got))
	}
}
