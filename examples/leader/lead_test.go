package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/rlock"
)

// In fake time, the test need not wait until a lease of the default length ends.
func TestALeaderThatIsCutOffStopsBeforeTheNextOneBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		mine, theirs := server.NewSession(), server.NewSession()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var begun, stopped int
		var cause error
		go func() {
			ended <- lead(ctx, rlock.New(mine, "leader"), func(ctx context.Context) {
				begun++
				<-ctx.Done()
				stopped, cause = stopped+1, context.Cause(ctx)
			})
		}()
		time.Sleep(time.Hour)
		server.Silence(mine)
		_, hold, err := rlock.New(theirs, "leader").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if begun != 1 || stopped != 1 || !errors.Is(cause, rlock.ErrLost) {
			t.Errorf("begun %d times and stopped %d times, with %v", begun, stopped, cause)
		}

		server.Resume(mine) // the first worker is a candidate again
		if err := hold.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if begun != 2 || stopped != 1 {
			t.Errorf("begun %d times and stopped %d times", begun, stopped)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
