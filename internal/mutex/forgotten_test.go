package mutex_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
)

// Where a context is observed by its Done channel alone, nothing but its hold knows the cause.
func TestAForgottenHoldEndsWithACauseOfItsOwn(t *testing.T) {
	l := newLock(t)
	e, err := l.m.Admitted(bg, mutex.Config{}, false)
	if err != nil {
		t.Fatal(err)
	}
	e.Forget()
	<-e.Context().Done()
	if err := context.Cause(e.Context()); !errors.Is(err, mutex.ErrForgotten) || !errors.Is(err, failure.ErrNotHeld) {
		t.Error(err)
	}
}
