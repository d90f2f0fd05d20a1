package testlock

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/rlock"
)

// An Observer is a function that can observe a session, see rlock.WithObserver.
type Observer func(rlock.Event)

// Observe calls f.
func (f Observer) Observe(_ context.Context, e rlock.Event) { f(e) }

// Waits is an observer that sends the name of a lock whenever a call begins to wait for this lock. If the
// channel is full, the name is dropped.
type Waits chan string

// Observe sends e.Name if e is an EventWaiting.
func (w Waits) Observe(_ context.Context, e rlock.Event) {
	if e.Type == rlock.EventWaiting {
		select {
		case w <- e.Name:
		default:
		}
	}
}

// A Hook is a hook of a client. It calls Command for each command outside of pipelines, and Pipeline for each
// pipeline. These functions must call next to send the command or the pipeline. If a function is nil, the
// client sends as without the Hook.
type Hook struct {
	Command  func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
	Pipeline func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error
}

// Around returns a Hook that calls f for each command and for each pipeline. f must call next to send the
// commands.
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
