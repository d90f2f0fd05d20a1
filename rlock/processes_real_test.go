package rlock_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

const goroutinesEach = 3

// contend is the main function of a process that increments a counter in Redis, which only the lock guards.
// It also records overlaps, and the order of tokens. args has the address of the server and the number of
// rounds.
func contend(args string) {
	var addr string
	var rounds int
	if _, err := fmt.Sscan(args, &addr, &rounds); err != nil {
		fail(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	s, err := rlock.NewSession(rdb)
	if err != nil {
		fail(err)
	}
	m := rlock.New(s, "x")
	var wg sync.WaitGroup
	for range goroutinesEach {
		wg.Go(func() {
			for range rounds {
				ctx, outer, err := m.Lock(bg)
				if err != nil {
					fail(err)
				}
				_, inner, err := m.Lock(ctx)
				if err != nil {
					fail(err)
				}
				if err := criticalSection(ctx, rdb, outer.Token()); err != nil {
					fail(err)
				}
				if err := inner.Unlock(bg); err != nil {
					fail(err)
				}
				if err := outer.Unlock(bg); err != nil {
					fail(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func criticalSection(ctx context.Context, rdb *redis.Client, token int64) error {
	if alone, err := rdb.SetNX(ctx, "inside", token, 0).Result(); err != nil || !alone {
		rdb.Incr(ctx, "overlaps")
	}
	n, err := rdb.Get(ctx, "counter").Int()
	if err != nil && err != redis.Nil {
		return err
	}
	pipe := rdb.Pipeline()
	pipe.Set(ctx, "counter", n+1, 0)
	pipe.RPush(ctx, "tokens", token)
	pipe.Del(ctx, "inside")
	_, err = pipe.Exec(ctx)
	return err
}

// Proves: exclusion
func TestManyProcessesNestAndNeverOverlap(t *testing.T) {
	t.Parallel()
	const processes, rounds = 3, 40
	server := testredis.Start(t) // not the shared server, because the processes use the default prefix
	rdb := server.Client(t)
	var wg sync.WaitGroup
	for range processes {
		cmd := testlock.Child(server.Addr, rounds)
		cmd.Stderr = os.Stderr
		testlock.Must(t, cmd.Start())
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("contender: %v", err)
			}
		})
	}
	wg.Wait()
	const want = processes * goroutinesEach
	if n, _ := rdb.Get(bg, "counter").Int(); n != want*rounds {
		t.Errorf("the counter is %d, want %d", n, want*rounds)
	}
	if n, _ := rdb.Get(bg, "overlaps").Int(); n != 0 {
		t.Errorf("%d overlaps", n)
	}
	last := int64(0)
	tokens := rdb.LRange(bg, "tokens", 0, -1).Val()
	for _, token := range tokens {
		n, err := strconv.ParseInt(token, 10, 64)
		if err != nil || n <= last {
			t.Fatalf("token %q after %d", token, last)
		}
		last = n
	}
	if len(tokens) != want*rounds {
		t.Errorf("%d tokens", len(tokens))
	}
	if rdb.HExists(bg, lockKey, "owner").Val() {
		t.Error("the lock is left behind")
	}
}
