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

func TestATickWhoseLockWasLostIsLeftToTheNextInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		rdb := server.Client()
		mine := rlock.New(server.NewSession(), "cron:report")
		theirs := rlock.New(server.NewSession(), "cron:report")
		err := once(t.Context(), rdb, mine, 1, func(ctx context.Context) error {
			server.Lose("cron:report")
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, rlock.ErrLost) {
			t.Errorf("the loss is not reported: %v", err)
		}

		runs := 0
		work := func(context.Context) error { runs++; time.Sleep(time.Minute); return nil }
		for _, lock := range []*rlock.Mutex{theirs, mine} {
			if err := once(t.Context(), rdb, lock, 1, work); err != nil {
				t.Error(err)
			}
		}
		if runs != 1 {
			t.Errorf("it ran %d times", runs)
		}
	})
}
