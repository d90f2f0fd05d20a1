package main

import (
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestThereIsOneLeaderAtATimeAndAlwaysANextOne(t *testing.T) {
	t.Parallel()
	history, err := run(t.Context(), "redis://"+testredis.Embedded(t).Addr(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(history) != 5 {
		t.Fatalf("%v", history)
	}
	for i, c := range history { // the changes are: leads, stops, leads, stops, leads
		if c.leading != (i%2 == 0) || !c.leading && c.worker != history[i-1].worker {
			t.Errorf("change %d: %v, in %v", i, c, history)
		}
	}
	if !errors.Is(history[1].why, rlock.ErrLost) || !errors.Is(history[3].why, rlock.ErrClosed) {
		t.Errorf("they stopped because of %v and %v", history[1].why, history[3].why)
	}
	if a, b, c := history[0].worker, history[2].worker, history[4].worker; a == b || b == c || a == c {
		t.Errorf("leaders %d, %d, %d", a, b, c)
	}
}
