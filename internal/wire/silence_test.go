package wire

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// answering is a client that answers each request after a time, with an error if there is one.
type answering struct {
	Client
	mu    sync.Mutex // guards the fields below
	after time.Duration
	err   error
}

func (c *answering) will(after time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after, c.err = after, err
}

func (c *answering) Process(_ context.Context, cmd redis.Cmder) error {
	c.mu.Lock()
	after, err := c.after, c.err
	c.mu.Unlock()
	time.Sleep(after)
	cmd.SetErr(err)
	return err
}

func TestAServerIsSilentUntilItAnswersAndWhileItDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &answering{}
		l := NewLink(c, Options{Context: t.Context()})
		l.Batching = -1
		sc := NewScript("return 'x'")
		send := func(after time.Duration, err error) Outcome {
			c.will(after, err)
			return l.Call(t.Context(), copier{sc}, 1, nil)
		}
		wants := func(when string, want bool) {
			t.Helper()
			if got := l.Silent(t.Context(), "k"); got != want {
				t.Errorf("%s: silent is %v", when, got)
			}
		}
		wants("before the first answer", true)
		send(0, nil)
		wants("after an answer", false)
		send(0, context.Canceled)
		wants("after a request that may not have been sent", false)
		send(0, errors.New("i/o timeout"))
		wants("after a request without an answer", true)
		send(0, redisError("LOADING"))
		wants("after an answer with an error", false)

		c.will(time.Second, nil)
		go l.Call(t.Context(), copier{sc}, 1, nil)
		time.Sleep(slow)
		wants("while it has not answered for a moment", false)
		time.Sleep(time.Millisecond)
		wants("while it has not answered for longer", true)
		send(time.Millisecond, nil) // while another request is in flight
		wants("after an answer to another one", false)
		time.Sleep(time.Minute)
		synctest.Wait()
		wants("a minute later", false)
	})
}

func TestADeadlineInTheFarFutureNeedsNoGoroutine(t *testing.T) {
	l := NewLink(&answering{}, Options{Context: t.Context()})
	l.Call(t.Context(), copier{NewScript("return 'x'")}, 1, nil)
	for deadline, want := range map[time.Time]bool{
		time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC): false,
		time.Now().Add(time.Hour):                   false,
		time.Now().Add(time.Second):                 true, // ReadTimeout is longer
	} {
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		if got := l.NeedsGoroutine(ctx, "k", 0); got != want {
			t.Errorf("%v: %v", deadline, got)
		}
		cancel()
	}
}

func TestAnOutcomeSaysSinceWhenNoRequestIsCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &answering{}
		l := NewLink(c, Options{Context: t.Context()})
		l.Batching = -1
		sc := NewScript("return 'x'")
		var began time.Time
		for i, err := range []error{
			nil, redisError("LOADING"), errors.New("EOF"), redisError("BUSY x"), nil, errors.New("EOF"),
		} {
			c.will(0, err)
			if i == 1 || i == 5 {
				began = time.Now()
			}
			o := l.Call(t.Context(), copier{sc}, 1, nil)
			if err == nil && !o.Failing.IsZero() || err != nil && !o.Failing.Equal(began) {
				t.Errorf("%d: %v", i, o.Failing)
			}
			time.Sleep(time.Second)
		}
	})
}

// copier makes requests for one key.
type copier struct{ sc *Script }

func (c copier) Request(time.Time) *Request { return NewRequest(c.sc, []any{"k"}, nil) }

// Otherwise a waiter for a RedLock that checks the server at this moment would leave the line of a healthy
// server.
func TestAServerIsNotSilentWhenARequestBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLink(&answering{}, Options{Context: t.Context()})
		l.Batching = -1
		sc := NewScript("return 'x'")
		send := func() { l.Call(t.Context(), copier{sc}, 1, nil) }
		send()
		for range 5000 {
			time.Sleep(time.Second) // time since the last answer
			done := make(chan struct{})
			go func() {
				defer close(done)
				send()
			}()
			for sent := false; !sent; {
				select {
				case <-done:
					sent = true
				default:
				}
				if l.Silent(t.Context(), "k") {
					t.Fatal("it is called silent")
				}
			}
		}
	})
}
