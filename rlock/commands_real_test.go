package rlock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// inScripts returns how many commands scripts have called on a server.
func inScripts(t *testing.T, admin *redis.Client) (n int) {
	t.Helper()
	byScripts := []string{"del", "hdel", "hget", "hgetall", "hmget", "hset", "pexpire", "publish",
		"pttl", "pubsub|numsub", "time", "zadd", "zrange", "zrem", "zscore"}
	stats, err := admin.Info(bg, "commandstats").Result()
	testlock.Must(t, err)
	for _, name := range byScripts {
		_, rest, ok := strings.Cut(stats, "cmdstat_"+name+":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		count, err := strconv.Atoi(calls)
		testlock.Must(t, err)
		n += count
	}
	return n
}

// Most of a server's time is used by the commands that scripts call. Their number is exact if nothing else
// uses the server.
func TestHowManyCommandsACycleCosts(t *testing.T) {
	t.Parallel()
	for kind, newMutex := range map[string]func(s *rlock.Session, name string) rlock.Locker{
		"reentrant": func(s *rlock.Session, name string) rlock.Locker { return rlock.New(s, name) },
		"fair":      func(s *rlock.Session, name string) rlock.Locker { return fairlock.New(s, name) },
		"writer":    func(s *rlock.Session, name string) rlock.Locker { return rwlock.New(s, name) },
		"permit": func(s *rlock.Session, name string) rlock.Locker {
			return semaphore.New(s, name, 1).Locker(1)
		},
		"reader": func(s *rlock.Session, name string) rlock.Locker {
			if name == "crowded" { // with readers alone, nobody waits
				return semaphore.New(s, name, 2).Locker(1)
			}
			return rwlock.New(s, name).RLocker()
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			admin := server.Client(t)
			alone := newMutex(testlock.NewSession(t, server.Client(t)), "alone")
			testlock.Must(t, testlock.Cycle(bg, alone))
			const cycles = 200
			before := inScripts(t, admin)
			for range cycles {
				testlock.Must(t, testlock.Cycle(bg, alone))
			}
			// Once in some thousand cycles, a script extends the life of the hash.
			if n := inScripts(t, admin) - before; n > 7*cycles+5 {
				t.Errorf("%d commands in %d cycles of one session", n, cycles)
			} else {
				t.Logf("%.1f commands in a cycle of one session", float64(n)/cycles)
			}

			ctx, cancel := context.WithCancel(testlock.Bounded(t))
			defer cancel()
			const sessions = 4
			ended := make(chan error, sessions)
			turns := make(chan struct{}, 1000)
			for range sessions {
				m := newMutex(testlock.NewSession(t, server.Client(t)), "crowded")
				go func() {
					for {
						if err := testlock.Cycle(ctx, m); err != nil {
							ended <- err
							return
						}
						turns <- struct{}{}
					}
				}()
			}
			wait := func(n int) {
				for range n {
					testlock.Receive(t, "a turn", turns)
				}
			}
			wait(100) // until all of them have subscriptions
			before = inScripts(t, admin)
			wait(2000)
			n := inScripts(t, admin) - before
			cancel()
			go func() {
				for range turns {
				}
			}()
			for range sessions {
				if err := testlock.Receive(t, "its end", ended); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			close(turns)
			// The count is not exact, because a turn is counted a little later than its commands.
			most := 24
			if kind == "reader" { // how often two sessions hold permits at once depends on timing
				most = 40
			}
			if n > most*2000 {
				t.Errorf("%d commands in 2000 cycles of %d sessions", n, sessions)
			}
			t.Logf("%.1f commands in a cycle of %d sessions", float64(n)/2000, sessions)
		})
	}
}
