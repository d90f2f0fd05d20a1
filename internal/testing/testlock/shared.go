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
	prefixes sync.Map // client of the shared server -> prefix of its sessions
	tests    atomic.Int64
)

// Shared returns a client of the real server that the tests of the package share (testredis.Shared). Sessions
// that NewSession opens with this client have a prefix that no other test has. So the test can use any names.
// The client is closed when the test ends.
func Shared(t testing.TB, mod ...func(*redis.Options)) *redis.Client {
	t.Helper()
	rdb := testredis.Shared(t).Client(t, mod...)
	share(t, rdb, fmt.Sprintf("test%d", tests.Add(1)))
	return rdb
}

// SharedToo returns another client of the shared server. Its sessions have the same prefix as the sessions of
// rdb, so they belong to the same test. rdb must be a client that Shared has returned.
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

// Prefix returns the prefix of the sessions that NewSession opens with rdb.
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

// pattern returns a pattern that matches the keys and the channels of the test of rdb.
func pattern(rdb redis.Cmdable) string {
	if prefix := prefixOf(rdb); prefix != "" {
		return prefix + ":*"
	}
	return "*"
}
