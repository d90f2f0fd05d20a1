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

// Shared returns the real server that the tests of a package share. The first call starts it, and Run ends
// it. No test may kill, stop, restart, configure or flush it, or count its requests. Each test must use names
// of its own, see testlock.Shared. If there is no binary, the test is skipped, as by Start.
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

// lasting takes the place of a test for a server that outlives the test. Run calls its cleanups.
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

// Run runs the tests of a package whose tests use servers, for its TestMain. It calls ManyAtOnce, and fails
// if goroutines are left.
func Run(m *testing.M, options ...goleak.Option) {
	ManyAtOnce()
	// go-redis dials a server that has ended once a second, and only then notices that its client was closed.
	goleak.VerifyTestMain(ending{m}, append(options,
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))...)
}

// ending runs the tests, and then ends the shared server.
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
