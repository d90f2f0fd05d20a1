package main

import (
	"context"
	"testing"

	"github.com/lockline/lockline/rlock"
)

// Helper helps tests, in a file that has another name.
func Helper(t testing.TB, m rlock.Locker) {
	if _, _, err := m.Lock(context.Background()); err == nil {
		t.Error("it is free")
	}
}
