package multilock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/testing/fake"
)

// A part may be lost, and buried, between the look at the live ones and their release.
func TestAPartThatWasBuriedMeanwhileIsReleasedAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.Session(t, fake.Client(t, func(fake.Call) (string, error) { return "R", nil }))
		m := &majority{q: &quorum{home: s}, parts: make([]*engine.Entry, 3)}
		if !s.Begin() {
			t.Fatal("the session is closed")
		}
		defer s.End()
		answers := m.release(context.Background(), []int{0, 2})
		for range 2 {
			if a := <-answers; !errors.Is(a.err, failure.ErrLost) {
				t.Errorf("%+v", a)
			}
		}
	})
}
