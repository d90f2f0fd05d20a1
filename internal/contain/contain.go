// Package contain runs what users plug in, observers and loggers, so that their panics stay their own.
package contain

import (
	"log/slog"
	"runtime/debug"
)

// Run calls f. A panic in f is logged as what's, if log is able to, and ends nothing else.
func Run(log *slog.Logger, what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }() // log may be what panics
			log.Error(what+" panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}
