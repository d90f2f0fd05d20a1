package testlock

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/rlock"
)

// An Observer is a function that is an observer of a session.
type Observer func(rlock.Event)

// Observe calls f.
func (f Observer) Observe(_ context.Context, e rlock.Event) { f(e) }

// Waits is an observer that sends the name of the lock whenever an acquisition begins to wait. It drops a
// name if the channel is full.
type Waits chan string

// Observe sends the name if e is the beginning of a wait.
func (w Waits) Observe(_ context.Context, e rlock.Event) {
	if e.Type == rlock.EventWaiting {
		select {
		case w <- e.Name:
		default:
		}
	}
}

// A Hook is a hook of a client. It calls Command for each command that is sent by itself, and Pipeline for
// each pipeline. These functions call next to send it. If a function is nil, nothing is changed.
type Hook struct {
	Command  func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
	Pipeline func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error
}

// Around returns a Hook that calls f for each command and for each pipeline. f calls next to send it.
func Around(f func(cmds []redis.Cmder, next func() error) error) Hook {
	return Hook{
		Command: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			return f([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
		},
		Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			return f(cmds, func() error { return next(ctx, cmds) })
		},
	}
}

// DialHook changes nothing.
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook calls Command.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if h.Command == nil {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error { return h.Command(ctx, cmd, next) }
}

// ProcessPipelineHook calls Pipeline.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if h.Pipeline == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.Pipeline(ctx, cmds, next) }
}
