package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// runNames locks and unlocks many names once each, and looks at what is left of them in Redis.
func runNames(ctx context.Context, b bout) (_ sample, err error) {
	if b.embedded {
		b.count = min(b.count, 1000) // what is left is not told, and more would take minutes
	}
	c, err := b.dial(b.setup)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	name := newName()
	var lost atomic.Int64
	once := func(i int) error {
		m := c.mutex(fmt.Sprint(name, ":", i))
		if _, err := m.lock(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if m.unlock(ctx) != nil {
			lost.Add(1)
		}
		return nil
	}
	spent, around := b.metered(ctx)
	if err := around(true); err != nil {
		return sample{}, err
	}
	cpu := cpuTime()
	took, err := timed(func() error { return inParallel(ctx, b.goroutines, b.count, once) })
	if err != nil {
		return sample{}, err
	}
	cpu = cpuTime() - cpu
	if err := around(false); err != nil {
		return sample{}, err
	}
	all := tally{Each: []int64{int64(b.count)}}
	f := figures{"cycles_per_s": float64(b.count) / took.Seconds(), "lost": float64(lost.Load())}
	if cpu > 0 && !b.embedded {
		f.perCycle("cpu_us_per_cycle", micros(cpu), &all)
	}
	if !b.tells() {
		return sample{figures: f}, nil
	}
	f.serverTime(*spent, &all)
	left, err := clearAway(ctx, b.Redis[0], name)
	if err != nil {
		return sample{}, err
	}
	f["left_keys_per_name"] = float64(left.keys) / float64(b.count)
	f["left_bytes_per_name"] = left.bytes / float64(b.count)
	if left.keys > 0 {
		f["left_for_us"] = left.lives()
	}
	return sample{figures: f}, nil
}

// leftovers are the keys that locks leave behind.
type leftovers struct {
	keys    int
	bytes   float64
	longest time.Duration // that one of them has to live
	forever bool          // one of them stays until somebody deletes it
}

// always is how long a key lives that does not expire.
const always = -1

func (l leftovers) lives() float64 {
	if l.forever {
		return always
	}
	return micros(l.longest)
}

// clearAway looks at all keys with the name in theirs, and deletes them: where they expired later, that would count as another contender's server time.
func clearAway(ctx context.Context, url, name string) (left leftovers, err error) {
	rdb, err := dialRedis(url)
	if err != nil {
		return left, err
	}
	defer func() { err = errors.Join(err, rdb.Close()) }()
	seen := map[string]bool{} // SCAN may bring a key more than once
	for cursor := uint64(0); ; {
		var keys []string
		if keys, cursor, err = rdb.Scan(ctx, cursor, "*"+name+"*", 1000).Result(); err != nil {
			return left, err
		}
		for _, k := range keys {
			seen[k] = true
		}
		if cursor == 0 {
			break
		}
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(seen)), 1000) {
		if err := left.add(ctx, rdb, some); err != nil {
			return left, err
		}
		if err := rdb.Unlink(ctx, some...).Err(); err != nil {
			return left, err
		}
	}
	return left, nil
}

func (l *leftovers) add(ctx context.Context, rdb *redis.Client, keys []string) error {
	sizes, lives := make([]*redis.IntCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			sizes[i], lives[i] = p.MemoryUsage(ctx, key, 0), p.PTTL(ctx, key)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for i := range keys {
		if sizes[i].Err() != nil || lives[i].Val() == -2 { // it has expired meanwhile
			continue
		}
		l.keys++
		l.bytes += float64(sizes[i].Val())
		l.longest = max(l.longest, lives[i].Val())
		l.forever = l.forever || lives[i].Val() == -1
	}
	return nil
}
