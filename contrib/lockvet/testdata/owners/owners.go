// Package owners has the layers of a program, which share an owner by rlock.WithOwner.
package owners

import (
	"context"

	"github.com/lockline/lockline/rlock"
)

func serve(ctx context.Context, m *rlock.Mutex) error { return add(rlock.WithOwner(ctx), m) }

func add(ctx context.Context, m *rlock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	return m.Do(ctx, func(context.Context) error { return get(ctx, m) })
}

func get(ctx context.Context, m *rlock.Mutex) error {
	return m.Do(ctx, func(context.Context) error { return nil })
}
