package semaphore_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// Proves: semaphore
func TestNobodyIsAboveTheLimitAndAllOfItIsUsed(t *testing.T) {
	t.Parallel()
	const limit, goroutines, each = 4, 8, 20
	sems := semsOf(t, testlock.Shared(t), 4, limit)
	var inside, most, sum atomic.Int64
	var wg sync.WaitGroup
	for _, s := range sems {
		for range goroutines {
			wg.Go(func() {
				for i := range each {
					n := int64(1 + i%2)
					err := s.Do(bg, int(n), func(context.Context) error {
						now := inside.Add(n)
						for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
						}
						for range 10 {
							runtime.Gosched()
						}
						inside.Add(-n)
						sum.Add(1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if most.Load() != limit || sum.Load() != 4*goroutines*each {
		t.Errorf("%d at most of %d, %d times", most.Load(), limit, sum.Load())
	}
	// Permits of an attempt that no goroutine needs any more are released in the background.
	testlock.Eventually(t, "nothing is used", func() bool {
		st := testlock.Inspect(t, sems[0])
		return st.Used() == 0 && len(st.Queue) == 0
	})
}
