// Package operate is what operators do with a lock that is not theirs: look at it, and free it by force. It
// holds nothing and waits for nothing but the answer of Redis.
//
// Begin with Inspect.
package operate

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// read runs a script on the lock; the caller may leave before the answer.
func read(ctx context.Context, m *mutex.Mutex, sc *wire.Script, argv ...any) (string, error) {
	s, fail := m.Session(), func(err error) (string, error) { return "", failure.Named(m.Name(), err) }
	if ctx.Err() != nil { // nothing is sent for a caller that has left already
		return fail(failure.OfContext(ctx))
	}
	if !s.Begin() {
		return fail(failure.ErrClosed)
	}
	defer s.End()
	r := &protocol.Same{Script: sc, Keys: m.Keys(), Argv: argv}
	silent := s.Link.Silent(ctx, m.Keys().Lock())
	o, answered := call.Ask(&wakeup.Bounds{Until: ctx}, s, silent, call.Func(func(most int, _ *atomic.Bool) wire.Outcome {
		return s.Link.Call(ctx, sc, r, most, nil)
	}), 0)
	switch {
	case !answered:
		return fail(failure.OfContext(ctx))
	case o.Err != nil:
		return "", m.Keys().Failed(o.Err)
	}
	return o.Reply, nil
}

// Inspect is what Redis knows of the lock. It blocks for the answer, not longer than ctx.
func Inspect(ctx context.Context, m *mutex.Mutex) (protocol.State, error) {
	if err := m.CheckUse(ctx); err != nil {
		return protocol.State{}, err
	}
	reply, err := read(ctx, m, m.Kind().Inspect)
	if err != nil {
		return protocol.State{}, err
	}
	st, err := protocol.DecodeState(m.Name(), reply)
	if err != nil {
		err = failure.Named(m.Name(), err)
	}
	return st, err
}

// ForceUnlock frees the lock, no matter which session holds it, and reports whether it was held.
func ForceUnlock(ctx context.Context, m *mutex.Mutex) (bool, error) {
	if err := m.CheckUse(ctx); err != nil {
		return false, err
	}
	return force(ctx, m, "")
}

// ForceUnlockToken frees the lock only if the holder is the one whose token Inspect has shown.
func ForceUnlockToken(ctx context.Context, m *mutex.Mutex, token int64) (bool, error) {
	if err := m.CheckUse(ctx); err != nil {
		return false, err
	}
	if token <= 0 {
		return false, failure.Named(m.Name(), fmt.Errorf("ForceUnlockToken: a token is above 0, not %d", token))
	}
	return force(ctx, m, token) // which one server never gives to two holders
}

// force frees the lock; if it is told which holder was seen, and not "", only that one's.
func force(ctx context.Context, m *mutex.Mutex, seen any) (bool, error) {
	reply, err := read(ctx, m, m.Kind().Force, m.Keys().Channel, m.Session().Args.Keep, seen)
	return strings.HasPrefix(reply, "R"), err
}
