package testredis

import (
	"testing"

	"go.uber.org/goleak"
)

// go-redis may dial for another second after its client was closed.
func TestMain(m *testing.M) {
	dials := "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(dials))
}
