package testredis

import (
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

var shared struct {
	sync.Mutex // guards server
	server     *Server
}

// Shared returns the one real server that the tests of a package share. The first call starts it, and Run
// ends it. No test kills, freezes, restarts, configures or flushes it, or counts what it does; each has names
// of its own there (testlock.Shared gives them). Without a binary the test is skipped, as by Start.
func Shared(t testing.TB) *Server {
	t.Helper()
	requireBinary(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = Start(&lasting{TB: t})
	}
	return shared.server
}

// lasting is a test for what outlives it: Run does its cleanups.
type lasting struct {
	testing.TB
}

var cleanups []func() // guarded by shared

func (l *lasting) Cleanup(f func()) { cleanups = append(cleanups, f) }
func (l *lasting) Failed() bool     { return false }

func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "lockline-shared-")
	must(l.TB, err)
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Run is the TestMain of a package whose tests use servers. Four parallel tests run at once unless -parallel
// says otherwise: by default there are as many as processors, and tests with servers mostly wait. Goroutines
// that are left fail it.
func Run(m *testing.M, options ...goleak.Option) {
	ManyAtOnce()
	// go-redis asks a server that is gone once a second, and only then sees that its client was closed.
	goleak.VerifyTestMain(ending{m}, append(options,
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))...)
}

// ending ends the shared server behind the last test.
type ending struct{ m *testing.M }

func (e ending) Run() int {
	code := e.m.Run()
	shared.Lock()
	defer shared.Unlock()
	for i := len(cleanups); i > 0; i-- {
		cleanups[i-1]()
	}
	return code
}
