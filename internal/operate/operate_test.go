package operate

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/broadcast"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// store is one whose reads are answered so.
func store(o wire.Outcome) *fake.Store {
	return &fake.Store{OnRead: func(*protocol.Same) wire.Outcome { return o }}
}

// newMutex is a lock whose grants live in the store.
func newMutex(t *testing.T, st *fake.Store) *mutex.Mutex {
	m := mutex.New(st.Session(t), st.Kind(broadcast.NewLock), "x", mutex.Config{})
	return &m
}

// all are the ways to look at a lock, or to free it.
var all = map[string]func(context.Context, *mutex.Mutex) error{
	"Inspect":          func(ctx context.Context, m *mutex.Mutex) error { _, err := Inspect(ctx, m); return err },
	"ForceUnlock":      func(ctx context.Context, m *mutex.Mutex) error { _, err := ForceUnlock(ctx, m); return err },
	"ForceUnlockToken": func(ctx context.Context, m *mutex.Mutex) error { _, err := ForceUnlockToken(ctx, m, 7); return err },
}

func TestAnOperatorWhoseContextEndsIsNotKeptWaiting(t *testing.T) {
	for name, call := range all {
		synctest.Test(t, func(t *testing.T) {
			const takes, patience = 10 * time.Second, time.Second
			st := &fake.Store{
				OnRead: func(*protocol.Same) wire.Outcome { time.Sleep(takes); return wire.Outcome{Reply: "R"} },
			}
			m := newMutex(t, st)
			ctx, cancel := context.WithTimeout(bg, patience)
			defer cancel()
			start := time.Now()
			if err := call(ctx, m); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != patience {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
			if err := call(ctx, m); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s with a context that has ended: %v", name, err)
			}
			st.Want(t, name, "read") // once
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
		st := store(wire.Outcome{Err: io.EOF})
		if err := call(bg, newMutex(t, st)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInspectShowsWhatTheServerSays(t *testing.T) {
	st, err := Inspect(bg, newMutex(t, store(wire.Outcome{Reply: `{"TTL": 5000, "Lock": {"s:1": "2", "t": "7"}}`})))
	if err != nil || !st.Held || st.Owner != "s:1" || st.Count != 2 || st.Token != 7 || st.Remaining != 5*time.Second {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := Inspect(bg, newMutex(t, store(wire.Outcome{Reply: "?"}))); err == nil {
		t.Error("no error of a reply that cannot be read")
	}
}

func TestALockWasHeldIfTheServerSaysSo(t *testing.T) {
	for reply, want := range map[string]bool{"R": true, "F": false, "O": false} {
		if held, err := ForceUnlock(bg, newMutex(t, store(wire.Outcome{Reply: reply}))); held != want || err != nil {
			t.Errorf("%q: %v, %v", reply, held, err)
		}
	}
}

func TestALockIsFreedOnlyOfTheHolderThatWasSeen(t *testing.T) {
	var sent *protocol.Same
	st := &fake.Store{OnRead: func(r *protocol.Same) wire.Outcome { sent = r; return wire.Outcome{Reply: "R"} }}
	if held, err := ForceUnlockToken(bg, newMutex(t, st), 7); !held || err != nil || !slices.Equal(sent.Argv[2:], []any{int64(7)}) {
		t.Errorf("%v, %v: %+v", held, err, sent)
	}
	for _, token := range []int64{0, -1} {
		if _, err := ForceUnlockToken(bg, newMutex(t, &fake.Store{}), token); err == nil {
			t.Errorf("no error for the token %d", token)
		}
	}
}
