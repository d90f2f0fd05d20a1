package rlock_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/rlock"
)

// observers are told what happens.
type observers func(e rlock.Event)

func (o observers) Observe(_ context.Context, e rlock.Event) { o(e) }

func TestEventsAndKeysNameTheKind(t *testing.T) {
	want := map[string]string{"reentrant": rlock.KindReentrant, "fair": rlock.KindFair, "redlock": rlock.KindRedLock}
	for kind, newMutex := range kinds {
		t.Run(kind, func(t *testing.T) {
			everyServer(t, func(t *testing.T, rdb *redis.Client) {
				n := 0
				s := newSession(t, rdb, rlock.WithObserver(observers(func(e rlock.Event) {
					if n++; e.Lock != want[kind] {
						t.Errorf("%v of a lock of kind %q", e.Kind, e.Lock)
					}
				})))
				_, hold := lock(t, newMutex(s, "x"), bg)
				if rdb.Exists(bg, "lockline:"+want[kind]+":{x}").Val() != 1 {
					t.Error("its key has another letter")
				}
				unlock(t, hold)
				if n != 2 {
					t.Errorf("%d events", n)
				}
			})
		})
	}
}
