package multilock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func TestAKeyOfAnotherTypeIsOfOneMemberOnly(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	ms, members := namesOf(testlock.NewSession(t, rdb), 5)
	l := multilock.New(members...)
	for i := range ms {
		_, hold := testlock.Lock(t, l, bg)
		key := testlock.Prefix(rdb) + ":r:{" + ms[i].Name() + "}"
		testlock.Must(t, rdb.Set(bg, key, "mine", 0).Err())
		var member *multilock.MemberError
		if err := hold.Unlock(bg); !errors.As(err, &member) || member.Index != i || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("Unlock: %v", err)
		}
		_, _, err := l.Lock(testlock.Bounded(t))
		if !errors.As(err, &member) || member.Index != i || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("Lock: %v", err)
		}
		if !free(t, slices.Delete(slices.Clone(ms), i, i+1)...) {
			t.Error("others are left")
		}
		if rdb.Get(bg, key).Val() != "mine" {
			t.Error("it was overwritten")
		}
		testlock.Must(t, rdb.Del(bg, key).Err())
	}
}

// A request for the replicas goes on without whoever is canceled, who goes on, too. For the race detector.
func TestConfirmationsAreLeftBehind(t *testing.T) {
	t.Parallel()
	s := testlock.NewSession(t, testlock.Shared(t), rlock.WithReplicas(1, time.Millisecond))
	_, members := namesOf(s, 8)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			l := multilock.New(members[2*g : 2*g+1+g%2]...)
			for range 100 {
				ctx, cancel := context.WithTimeout(bg, 50*time.Microsecond+rand.N(800*time.Microsecond))
				if _, h, err := l.Lock(ctx); err == nil {
					_ = h.Unlock(bg)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

func TestRandomOverlappingSetsInManyProcessesAllGetThrough(t *testing.T) {
	t.Parallel()
	contention(t, 3, 8)
}
