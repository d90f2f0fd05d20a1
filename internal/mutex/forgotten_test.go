package mutex

import (
	"context"
	"errors"
	"testing"

	"github.com/lockline/lockline/internal/failure"
)

// Where a context is observed by its Done channel alone, nothing but its hold knows the cause.
func TestAForgottenHoldEndsWithACauseOfItsOwn(t *testing.T) {
	l := newStore(t)
	e, err := l.m.admitted(bg, Config{}, false)
	if err != nil {
		t.Fatal(err)
	}
	e.Forgotten()
	<-e.Context().Done()
	if err := context.Cause(e.Context()); !errors.Is(err, failure.ErrForgotten) || !errors.Is(err, failure.ErrNotHeld) {
		t.Error(err)
	}
}
