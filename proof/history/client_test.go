package history

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// At the end of a run, the servers of a lock may be slow for a moment. The lock is only Stuck if it cannot be
// acquired within patience.
func TestALockIsStuckThatIsNotToBeHadForAsLongAsPatienceLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{Assignment: Assignment{Lease: time.Second}, reports: json.NewEncoder(io.Discard)}
		u := user{c, "1.0", rand.New(rand.NewPCG(0, 0))}
		begun, slow := time.Now(), errors.New("no answer in time")
		err := u.getIn(func(user, context.Context) error {
			if time.Since(begun) < 20*time.Second {
				return slow
			}
			return nil
		}, 30*time.Second)
		if took := time.Since(begun); err != nil || took != 20*time.Second {
			t.Errorf("a lock that is free after 20 s: %v after %v", err, took)
		}
		begun = time.Now()
		err = u.getIn(func(user, context.Context) error { return slow }, 30*time.Second)
		if took := time.Since(begun); !errors.Is(err, slow) || took < 29*time.Second ||
			took > 30*time.Second {
			t.Errorf("a lock that is never free: %v after %v", err, took)
		}
		begun = time.Now()
		err = u.getIn(func(_ user, ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			30*time.Second)
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != 30*time.Second {
			t.Errorf("a lock that another holds: %v after %v", err, took)
		}
	})
}
