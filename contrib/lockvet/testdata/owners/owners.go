// Package owners has layers that share the context of a request.
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
