package engine

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/internal/wire"
)

// alwaysGranted is a Mutex of a session of its own, whose scripts grant and release whatever is there.
func alwaysGranted(t *testing.T) Mutex {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: testredis.Embedded(t).Addr()})
	s, err := NewSession(rdb, SessionConfig{Prefix: "p", Lease: time.Minute, Liveness: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Shutdown(context.Background())
		_ = rdb.Close()
	})
	return NewMutex(s, &Protocol{Kind: Reentrant, Lock: wire.NewScript("return 'G 1 1'"), Release: wire.NewScript("return 'R'")}, "x", Config{})
}

// Where a context is observed by its Done channel alone, nothing but its hold knows the cause.
func TestAForgottenHoldEndsWithACauseOfItsOwn(t *testing.T) {
	m := alwaysGranted(t)
	h, err := m.acquire(context.Background(), Config{}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	(*entry)(h).forgotten()
	<-h.Done()
	if err := context.Cause(h); !errors.Is(err, errForgotten) || !errors.Is(err, ErrNotHeld) {
		t.Error(err)
	}
}

func TestTheLossOfAForgottenHoldIsNotItsOwners(t *testing.T) {
	m := alwaysGranted(t)
	collected := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !done(); runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatalf("still not: %s", what)
			}
		}
	}
	for _, lostFirst := range []bool{false, true} {
		ctx := WithOwner(context.Background())
		h, err := m.acquire(ctx, Config{Lease: time.Minute}, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, hd := h.st.lock, h.handle().returned()
		if lostFirst {
			h.st.end(lost, errExpired)
			runtime.GC()
			if !h.as.hasLost(l) {
				t.Error("the loss of a hold that can be unlocked is not counted")
			}
		}
		runtime.KeepAlive(hd)
		collected("forgotten", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return h.unlocked
		})
		if !lostFirst {
			h.st.end(lost, errExpired)
		}
		if h.as.hasLost(l) {
			t.Errorf("lost first %v: the loss of a forgotten hold is counted", lostFirst)
		}
	}
}
