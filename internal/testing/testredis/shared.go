package testredis

import (
	"net"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

var shared struct {
	sync.Mutex // guards server
	server     *Server
}

// Shared returns the real server that the tests of a package share. The first call of Shared starts this
// server, and Run ends it after all tests. No test may kill, stop, restart, configure or flush the server, or
// count its requests. Each test must use its own names or prefix, see testlock.Shared. If there is no binary,
// Shared skips the test or lets it fail, as Start does.
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

// lasting takes the place of a test for the shared server, which outlives the test. Its method Cleanup adds
// functions to cleanups, and Run calls them after all tests.
type lasting struct {
	testing.TB
}

var cleanups []func() // cleanups of lasting; guarded by shared

func (l *lasting) Cleanup(f func()) { cleanups = append(cleanups, f) }
func (l *lasting) Failed() bool     { return false }

func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "lockline-shared-")
	must(l.TB, err)
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Run calls ManyAtOnce, runs the tests of a package, ends the shared server, and fails if goroutines are
// left. The TestMain of each package whose tests use servers calls Run.
func Run(m *testing.M, options ...goleak.Option) {
	ManyAtOnce()
	// The first lookup of a host makes a channel for all later ones. In fake time, this channel would belong
	// to the test that made it, and Go 1.25 ends the process when another test uses it.
	_, _ = net.LookupHost("localhost")
	// If a server has ended, go-redis dials once a second, and does not notice before the next dial that its
	// client was closed.
	goleak.VerifyTestMain(ending{m}, append(options,
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))...)
}

// ending has a method Run that runs the tests and then ends the shared server.
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
