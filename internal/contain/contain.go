// Package contain recovers panics of code that users plug in, such as observers, loggers and clients.
package contain

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Run calls f. If f panics, Run logs the panic, with what as the name of f. A panic of log is ignored.
func Run(log *slog.Logger, what string, f func()) {
	defer Recover(log, what, new(error))
	f()
}

// Recover turns a panic into an error, and logs the panic like Run. It must be deferred.
func Recover(log *slog.Logger, what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s panicked: %v", what, p)
		defer func() { _ = recover() }() // log itself may panic
		log.Error(what+" panicked", "panic", p, "stack", string(debug.Stack()))
	}
}
