// Package contain runs what users plug in, observers and loggers, so that their mistakes stay their own.
package contain

import (
	"log/slog"
	"runtime/debug"
)

// Run calls f in a goroutine of its own and waits until that has ended: neither a panic in f nor
// runtime.Goexit (which t.FailNow calls) ends what the caller does. Either is logged as what's, if log is
// able to.
func Run(log *slog.Logger, what string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done) // runs last, so the caller goes on when all is logged
		returned := false // recover cannot tell Goexit from a return
		defer func() {
			if returned {
				return
			}
			p := recover()
			defer func() { _ = recover() }() // log may be what panics
			if p != nil {
				log.Error(what+" panicked", "panic", p, "stack", string(debug.Stack()))
			} else {
				log.Error(what + " called runtime.Goexit")
			}
		}()
		f()
		returned = true
	}()
	<-done
}
