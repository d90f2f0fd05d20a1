package main

import (
	"context"
	"testing"

	"github.com/lockline/lockline/rlock"
)

// Helper tries a lock for tests, although the name of its file does not end in _test.go.
func Helper(t testing.TB, m rlock.Locker) {
	if _, _, err := m.Lock(context.Background()); err == nil {
		t.Error("it is free")
	}
}
