package session

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sound is a Config that New accepts.
var sound = Config{Prefix: "p", Lease: time.Minute, WaiterTimeout: time.Second,
	Logger: slog.New(slog.DiscardHandler)}

// nowhere is a client to which no request is sent.
type nowhere struct{ wire.Client }

// open makes a session without a server. The session is closed when the test ends.
func open(t *testing.T) *Session {
	t.Helper()
	return openAs(t, sound)
}

// openAs is like open, but with another Config.
func openAs(t *testing.T, cfg Config) *Session {
	t.Helper()
	s, err := New(&nowhere{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, s) })
	return s
}

// bounded returns a context with a timeout that no test should reach.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func end(t *testing.T, s *Session) {
	t.Helper()
	if err := s.Shutdown(bounded(t)); err != nil {
		t.Error(err)
	}
}
