package engine_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wire"
)

var kind = engine.NewLock(protocol.Reentrant, false)

// newMutex returns a lock on a server that replies with the results of answer.
func newMutex(t *testing.T, answer func(fake.Call) (string, error)) *engine.Lock {
	m := engine.New(fake.Session(t, fake.Client(t, answer)), kind, "x", engine.Config{})
	return &m
}

// replies returns a function that answers each request with this reply.
func replies(reply string) func(fake.Call) (string, error) {
	return func(fake.Call) (string, error) { return reply, nil }
}

// all has the calls that inspect a lock or free it by force.
var all = map[string]func(context.Context, *engine.Lock) error{
	"Inspect": func(ctx context.Context, m *engine.Lock) error {
		_, err := m.Inspect(ctx)
		return err
	},
	"Force": func(ctx context.Context, m *engine.Lock) error {
		_, err := m.Force(ctx, engine.ForceExclusive)
		return err
	},
	"ForceToken": func(ctx context.Context, m *engine.Lock) error {
		_, err := m.ForceToken(ctx, 7)
		return err
	},
}

func TestAnOperatorWhoseContextEndsIsNotKeptWaiting(t *testing.T) {
	for name, call := range all {
		synctest.Test(t, func(t *testing.T) {
			const takes, patience = 10 * time.Second, time.Second
			var asked atomic.Int64
			m := newMutex(t, func(fake.Call) (string, error) {
				asked.Add(1)
				time.Sleep(takes)
				return "1", nil
			})
			ctx, cancel := context.WithTimeout(bg, patience)
			defer cancel()
			start := time.Now()
			err := call(ctx, m)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != patience {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
			if err := call(ctx, m); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s with a context that has ended: %v", name, err)
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("%s: %d requests", name, n)
			}
			if err := m.Session().Shutdown(bg); err != nil || time.Since(start) != takes {
				t.Errorf("%s: its session ended after %v, %v", name, time.Since(start), err)
			}
			if err := call(bg, m); !errors.Is(err, failure.ErrClosed) {
				t.Errorf("%s in a session that has ended: %v", name, err)
			}
		})
	}
}

func TestAnErrorOfTheServersIsTheOperators(t *testing.T) {
	for name, call := range all {
		m := newMutex(t, func(fake.Call) (string, error) { return "", wire.Unexpected("down") })
		if err := call(bg, m); !errors.As(err, new(wire.Unexpected)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInspectShowsWhatTheServerSays(t *testing.T) {
	st, err := newMutex(t, replies(`{"now": "1000",
		"lock": {"owner": "s:1", "ends": "5001000", "count": "2", "token": "7"}}`)).Inspect(bg)
	if err != nil || !st.Held || st.Owner != "s:1" || st.Count != 2 || st.Token != 7 ||
		st.Remaining != 5*time.Second {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := newMutex(t, replies("?")).Inspect(bg); err == nil {
		t.Error("no error of a reply that cannot be read")
	}
}

func TestHoldersAreCountedAsTheServerSays(t *testing.T) {
	for reply, want := range map[string]int{"0": 0, "1": 1, "3": 3} {
		if n, err := newMutex(t, replies(reply)).Force(bg, engine.ForceShared); n != want || err != nil {
			t.Errorf("%q: %v, %v", reply, n, err)
		}
	}
	if _, err := newMutex(t, replies("?")).Force(bg, engine.ForceExclusive); err == nil {
		t.Error("no error of a reply that cannot be read")
	}
}

// The first copy of the request gets no reply.
func TestAForcedUnlockThatMayHaveFreedTheLockDoesNotDenyIt(t *testing.T) {
	for reply, want := range map[string]int{"0": 0, "2": 2} {
		var copies atomic.Int64
		n, err := newMutex(t, func(fake.Call) (string, error) {
			if copies.Add(1) == 1 {
				return "", io.EOF
			}
			return reply, nil
		}).Force(bg, engine.ForceShared)
		if n != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", reply, n, err)
		}
	}
}

func TestALockIsFreedOnlyOfTheHolderThatWasSeen(t *testing.T) {
	var sent fake.Call
	m := newMutex(t, func(c fake.Call) (string, error) { sent = c; return "1", nil })
	if held, err := m.ForceToken(bg, 7); !held || err != nil || !slices.Equal(sent.Argv[2:], []any{"7"}) {
		t.Errorf("%v, %v: %+v", held, err, sent)
	}
	for _, token := range []int64{0, -1} {
		if _, err := m.ForceToken(bg, token); err == nil {
			t.Errorf("no error for the token %d", token)
		}
	}
}
