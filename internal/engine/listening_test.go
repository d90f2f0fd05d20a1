package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestTheSessionListensWhileAnAttemptWaitsAndALittleLonger(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		mine, theirs := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		_, hold := testlock.Lock(t, rlock.New(theirs, "x"), context.Background())
		defer testlock.Unlock(t, hold)
		listens := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := len(w.PubSubChannels("lockline:s:"+mine.ID())) > 0; got != want {
				t.Errorf("%s: it listens: %v", when, got)
			}
		}
		listens("no attempt waits", false)
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan error)
		go func() {
			_, _, err := rlock.New(mine, "x").Lock(ctx)
			got <- err
		}()
		time.Sleep(time.Second)
		listens("an attempt waits", true)
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		listens("it is over", true)
		time.Sleep(time.Minute)
		listens("long after that", false)
	})
}
