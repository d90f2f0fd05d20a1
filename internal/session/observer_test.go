package session

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnObserverLearnsWhatHappenedToWhichLockAndWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type word struct{}
		ctx := context.WithValue(context.Background(), word{}, "x")
		var got Event
		cfg := sound
		cfg.Observer = func(ctx context.Context, e Event) {
			if got = e; ctx.Value(word{}) != "x" {
				t.Error("it has another context")
			}
		}
		s := openAs(t, cfg)
		s.Observe(ctx, "r", "orders", Event{Kind: EventAcquired, Token: 7})
		want := Event{
			Kind: EventAcquired, Lock: "r", Name: "orders", Session: s.ID(), At: time.Now(), Token: 7,
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestAnObserverThatPanicsEndsNothing(t *testing.T) {
	cfg := sound
	told := 0
	cfg.Observer = func(context.Context, Event) { told++; panic("a mistake") }
	s := openAs(t, cfg)
	for range 2 {
		s.Observe(context.Background(), "r", "orders", Event{})
	}
	if told != 2 {
		t.Errorf("it was told %d times", told)
	}
}

func TestWithoutAnObserverNothingIsLogged(t *testing.T) {
	var log bytes.Buffer
	cfg := sound
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := openAs(t, cfg)
	if s.Observe(context.Background(), "r", "orders", Event{}); log.Len() > 0 {
		t.Errorf("%s", &log)
	}
}

// panicking is a logger that always panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { panic("a mistake") }

func TestALoggerThatPanicsEndsNothing(t *testing.T) {
	cfg := sound
	cfg.Logger = slog.New(panicking{})
	s := openAs(t, cfg)
	s.Warn("lock lost")
}
