package main

import (
	"context"

	"github.com/lockline/lockline/rlock"
)

// lockvet reports no mistakes in tests, because tests may make them on purpose.
func Example() {
	ctx := context.Background()
	m := rlock.New(nil, "x")
	held, _, _ := m.Lock(ctx, rlock.WaitAtMost(2))
	_ = work(held)
}
