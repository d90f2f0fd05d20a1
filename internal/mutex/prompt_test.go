package mutex_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// A release that was sent in the caller's goroutine and not answered may have run. So it is sent again, and "lost" means nothing then.
func TestAReleaseThatIsNotAnsweredPromptlyIsSentAgain(t *testing.T) {
	lost := errors.New("no answer")
	answer := func(reply string) wire.Outcome { return wire.Outcome{Reply: reply} }
	for _, c := range []struct {
		name   string
		prompt wire.Outcome
		ok     bool
		then   wire.Outcome // of the usual way
		want   error
		again  bool
	}{
		{"released", answer("R"), true, answer("none"), nil, false},
		{"lost", answer("L"), true, answer("none"), failure.ErrLost, false},
		{"not sent", wire.Outcome{}, false, answer("R"), nil, true},
		{"not sent, and lost", wire.Outcome{}, false, answer("L"), failure.ErrLost, true},
		{"not answered", wire.Outcome{Unanswered: lost}, false, answer("R"), nil, true},
		{"not answered, then lost", wire.Outcome{Unanswered: lost}, false, answer("L"), lost, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLock(t)
				l.OnPrompt = func(*protocol.Release) (wire.Outcome, bool) { return c.prompt, c.ok }
				l.OnRelease = func(*protocol.Release) wire.Outcome { return c.then }
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				_, hold := l.lock(t, ctx, mutex.Config{})
				l.Want(t, "Lock", "ask")
				if err := hold.Unlock(ctx); !errors.Is(err, c.want) {
					t.Errorf("Unlock: %v, want %v", err, c.want)
				}
				want := []string{"release 1 promptly"}
				if c.again {
					want = append(want, "release 1")
				}
				l.Want(t, "Unlock", want...)
			})
		})
	}
}
