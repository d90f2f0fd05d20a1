package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bsm/redislock"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// permits is the number of permits of each semaphore.
const permits = 4

// pollEach is the interval at which some contenders poll for a permit. Intervals of 8 and 16 ms gave a few
// more cycles but smaller least shares. Intervals of 1 and 2 ms needed more requests but gave no more cycles.
const pollEach = 4 * time.Millisecond

// redislockKeys returns a contender whose semaphore consists of one lock for each permit.
func redislockKeys() contender {
	return contender{
		name:   "redislock-keys",
		module: "github.com/bsm/redislock",
		config: fmt.Sprintf("%d locks, one for each permit. A client tries them one after another, "+
			"beginning with a random one, and again after LinearBackoff(%v). Their TTL is 30 s, "+
			"without renewal", permits, pollEach),
		dial: func(to setup) (client, error) {
			rdb, err := dialRedis(to.redis[0])
			if err != nil {
				return nil, err
			}
			retry := func() redislock.RetryStrategy { return redislock.LinearBackoff(pollEach) }
			return &keysClient{redislockClient{rdb, redislock.New(rdb),
				cmp.Or(to.lease, defaultLease), retry}}, nil
		},
	}
}

type keysClient struct{ redislockClient }

func (c *keysClient) mutex(name string) mutex {
	return &keysPermit{redislockMutex{redislockClient: &c.redislockClient, name: name}}
}

type keysPermit struct{ redislockMutex }

func (m *keysPermit) lock(ctx context.Context) (err error) {
	for retry := m.retry(); ; {
		first := rand.IntN(permits)
		for i := range permits {
			m.held, err = m.locker.Obtain(ctx, fmt.Sprint(m.name, ":", (first+i)%permits), m.ttl, nil)
			if !errors.Is(err, redislock.ErrNotObtained) {
				return err
			}
		}
		if err := pause(ctx, retry.NextBackoff()); err != nil {
			return err
		}
	}
}

//go:embed zset_acquire.lua
var zsetAcquireBody string

var zsetAcquire = redis.NewScript(zsetAcquireBody)

// zsetPoll returns a contender whose semaphore is a sorted set of holders. Many users write such a semaphore
// themselves.
func zsetPoll() contender {
	return contender{
		name:   "zset-poll",
		module: "github.com/redis/go-redis/v9",
		config: fmt.Sprintf("a sorted set of the holders by the ends of their leases. A script removes "+
			"holders whose lease has ended, and adds one if there are fewer than %d. A waiter runs it "+
			"every %v. ZREM releases a permit. The lease is 30 s, without renewal", permits, pollEach),
		unscripted: []string{"zrem"},
		dial: func(to setup) (client, error) {
			rdb, err := dialRedis(to.redis[0])
			return zsetClient{rdb, cmp.Or(to.lease, defaultLease)}, err
		},
	}
}

type zsetClient struct {
	rdb   *redis.Client
	lease time.Duration
}

func (c zsetClient) mutex(name string) mutex { return &zsetPermit{c, name, uuid.NewString()} }
func (c zsetClient) close() error            { return c.rdb.Close() }

type zsetPermit struct {
	zsetClient
	name, owner string
}

func (m *zsetPermit) lock(ctx context.Context) error {
	for {
		got, err := zsetAcquire.Run(ctx, m.rdb, []string{m.name}, m.owner, permits,
			m.lease.Milliseconds()).Bool()
		if got || err != nil {
			return err
		}
		if err := pause(ctx, pollEach); err != nil {
			return err
		}
	}
}

func (m *zsetPermit) unlock(ctx context.Context) error {
	n, err := m.rdb.ZRem(ctx, m.name, m.owner).Result()
	if err == nil && n == 0 {
		err = errors.New("the permit is gone")
	}
	return err
}
