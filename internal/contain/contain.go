// Package contain keeps the panics of what users plug in, as observers, loggers and clients, their own.
package contain

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Run calls f. A panic in f is logged as what's, if log is able to, and ends nothing else.
func Run(log *slog.Logger, what string, f func()) {
	defer Recover(log, what, new(error))
	f()
}

// Recover, deferred, makes a panic an error, and logs it as Run does.
func Recover(log *slog.Logger, what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s panicked: %v", what, p)
		defer func() { _ = recover() }() // log may be what panics
		log.Error(what+" panicked", "panic", p, "stack", string(debug.Stack()))
	}
}
