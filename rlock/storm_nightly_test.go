//go:build nightly

package rlock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestAStormOfEverythingLeavesEveryNameAlive(t *testing.T) {
	t.Parallel()
	for network, broken := range map[string]bool{"whole": false, "broken": true} {
		t.Run(network, func(t *testing.T) {
			testlock.EveryKind(t, func(t *testing.T, newMutex testlock.Maker) {
				t.Parallel()
				server := testredis.Start(t)
				one, other := faultproxy.New(t, server.Addr), faultproxy.New(t, server.Addr)
				clients := []*redis.Client{one.Client(t, testlock.Impatient),
					other.Client(t, testlock.Impatient)}
				for range 3 {
					calm := func() {}
					if broken {
						calm = breaking(one, other)
					}
					blow(t, newMutex, 12, 40, clients, calm)
					testlock.OnlyTokens(t, server.Client(t))
				}
			})
		})
	}
}
