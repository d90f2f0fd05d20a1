package handle_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/lockline/lockline/internal/handle"
)

// forgets reports whether the garbage collector finds, within a few cycles, a value that was passed to keep.
func forgets(keep func(*[16]byte)) bool {
	var found atomic.Bool
	func() {
		x := new([16]byte)
		runtime.AddCleanup(x, func(found *atomic.Bool) { found.Store(true) }, &found)
		keep(x)
	}()
	for range 5 {
		runtime.GC()
		var reached atomic.Bool // the runtime reports in order, so earlier Holds are reported by then, too
		runtime.AddCleanup(new([16]byte), func(reached *atomic.Bool) { reached.Store(true) }, &reached)
		for !reached.Load() {
			runtime.GC()
			runtime.Gosched()
		}
	}
	return found.Load()
}

func TestWhatIsKeptIsNotForgottenUntilTheLastKeepAllEnds(t *testing.T) {
	keep := func(x *[16]byte) { handle.Keep(x) }
	if !forgets(keep) {
		t.Error("it is kept without KeepAll")
	}
	first, second := handle.KeepAll(), handle.KeepAll()
	if forgets(keep) {
		t.Error("it is forgotten")
	}
	if !forgets(func(x *[16]byte) { handle.Keep(x); handle.Drop(x) }) {
		t.Error("it is kept after Drop")
	}
	first()
	first() // does nothing
	var found atomic.Bool
	func() {
		x := new([16]byte)
		runtime.AddCleanup(x, func(found *atomic.Bool) { found.Store(true) }, &found)
		handle.Keep(x)
	}()
	runtime.GC()
	if forgets(keep) || found.Load() {
		t.Error("it is forgotten while there is another KeepAll")
	}
	second()
	for !found.Load() {
		runtime.GC()
		runtime.Gosched()
	}
}
