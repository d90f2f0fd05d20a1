package testredis

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// Embedded returns a server inside the test process. The keys of the server expire by the clock. The server
// is closed when the test ends.
func Embedded(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	return m
}
