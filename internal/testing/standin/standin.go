// Package standin lets a program that is not a test use the servers and proxies that are made for tests.
package standin

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// A Host takes the place of a test. It has the methods of testing.TB that faultproxy.New and testredis.Start
// use, but for example no Context, which replicas and Clusters need. The methods Fatal, Fatalf and Skip
// panic, and Run returns such a panic as an error.
type Host struct {
	testing.TB // always nil, so a method that Host does not define panics

	program string
	mu      sync.Mutex // guards cleanup
	cleanup []func()
}

// A failure is the value with which Fatal panics.
type failure string

// New returns the Host of a program. Error messages of the Host begin with the name of the program. The
// caller must call End.
func New(program string) *Host { return &Host{program: program} }

// Run calls f with a Host, and then ends the Host. It returns the error of f, or the error of a Fatal, Fatalf
// or Skip that f has called.
func Run(program string, f func(h *Host) error) (err error) {
	h := New(program)
	defer h.End()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("%s", string(r))
		default:
			panic(r)
		}
	}()
	return f(h)
}

// End runs the functions that Cleanup was given, the last one first.
func (h *Host) End() {
	for {
		h.mu.Lock()
		n := len(h.cleanup)
		if n == 0 {
			h.mu.Unlock()
			return
		}
		f := h.cleanup[n-1]
		h.cleanup = h.cleanup[:n-1]
		h.mu.Unlock()
		f()
	}
}

func (h *Host) Helper() {}

func (h *Host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanup = append(h.cleanup, f)
}

func (h *Host) TempDir() string {
	dir, err := os.MkdirTemp("", h.program+"-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (h *Host) Failed() bool { return false }

func (h *Host) Logf(format string, args ...any) { h.Errorf(format, args...) }

func (h *Host) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, h.program+": "+format+"\n", args...)
}

func (h *Host) Fatal(args ...any)                 { panic(failure(fmt.Sprint(args...))) }
func (h *Host) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (h *Host) Skip(args ...any)                  { h.Fatal(args...) }
