package testlock

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testredis"
)

var (
	prefixes sync.Map // prefix of each client of a shared server
	tests    atomic.Int64
)

// Shared returns a client of the real server that the tests of the package share (testredis.Shared).
// NewSession gives sessions of this client a prefix of their own, so that a test can use any names. The
// client is closed when the test ends.
func Shared(t testing.TB, mod ...func(*redis.Options)) *redis.Client {
	t.Helper()
	rdb := testredis.Shared(t).Client(t, mod...)
	share(t, rdb, fmt.Sprintf("test%d", tests.Add(1)))
	return rdb
}

// SharedToo returns another client of the same server. Its sessions have the prefix of rdb, which Shared has
// returned.
func SharedToo(t testing.TB, rdb *redis.Client, mod ...func(*redis.Options)) *redis.Client {
	t.Helper()
	more := testredis.Shared(t).Client(t, mod...)
	share(t, more, Prefix(rdb))
	return more
}

func share(t testing.TB, rdb *redis.Client, prefix string) {
	prefixes.Store(rdb, prefix)
	t.Cleanup(func() { prefixes.Delete(rdb) })
}

// Prefix returns the prefix of the sessions that NewSession makes with this client.
func Prefix(rdb redis.Cmdable) string {
	if prefix := prefixOf(rdb); prefix != "" {
		return prefix
	}
	return "lockline"
}

func prefixOf(rdb any) string {
	client, ok := rdb.(*redis.Client)
	if !ok {
		return ""
	}
	prefix, _ := prefixes.Load(client)
	s, _ := prefix.(string)
	return s
}

// pattern returns a pattern of the keys and channels of the test.
func pattern(rdb redis.Cmdable) string {
	if prefix := prefixOf(rdb); prefix != "" {
		return prefix + ":*"
	}
	return "*"
}
