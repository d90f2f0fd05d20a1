package rlock_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// A Lock waits through an outage. But these addresses are wrong, so waiting would not help.
func TestAnAddressThatNoServerHasIsAnErrorAtOnce(t *testing.T) {
	for addr, says := range map[string]string{
		"redis://127.0.0.1:6379": "too many colons in address (the address in the client's options " +
			"must be HOST:PORT; redis.ParseURL makes options of a URL)",
		"127.0.0.1":       "missing port in address",
		"127.0.0.1:99999": "invalid port",
	} {
		synctest.Test(t, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			defer rdb.Close()
			session := testlock.NewSession(t, rdb)
			defer session.Close()
			began := time.Now()
			_, _, err := rlock.New(session, "n").Lock(t.Context())
			if err == nil || !strings.Contains(err.Error(), says) || time.Since(began) > time.Second {
				t.Errorf("%s: after %v: %v", addr, time.Since(began), err)
			}
		})
	}
}
