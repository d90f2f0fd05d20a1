// Command cron runs a job once for each tick, although five instances of the program try to run it. The lock
// keeps two instances from running the job at the same time. A record of the last completed tick keeps the
// instances from running the job again for this tick. If an instance fails or dies, another instance runs the
// tick.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/rlock"
)

const (
	instances = 5
	ticks     = 4
	period    = 200 * time.Millisecond
)

// once runs work for a tick, unless an instance has already completed the tick. It waits while another
// instance runs work. If work fails, if the lock is lost, or if the instance dies before it records the tick,
// work can run twice for this tick.
func once(
	ctx context.Context, rdb *redis.Client, lock *rlock.Mutex, tick int64, work func(context.Context) error,
) error {
	return lock.Do(ctx, func(ctx context.Context) error {
		done := lock.Name() + ":done"
		last, err := rdb.Get(ctx, done).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if last >= tick {
			return nil
		}
		if err := work(ctx); err != nil { // ctx ends if the lock is lost, and then work must stop
			return err
		}
		return rdb.Set(ctx, done, tick, 0).Err()
	})
}

// instance acts as one process of the program. It calls once for each tick.
func instance(
	ctx context.Context, url string, number int, begin time.Time,
	work func(ctx context.Context, instance int, tick int64) error,
) error {
	rdb, err := exampleredis.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	session, err := rlock.NewSession(rdb, rlock.WithLabel("instance "+strconv.Itoa(number)))
	if err != nil {
		return err
	}
	defer session.Close()
	lock := rlock.New(session, "cron:report")
	for tick := int64(1); tick <= ticks; tick++ {
		time.Sleep(time.Until(begin.Add(time.Duration(tick-1) * period)))
		if err := once(ctx, rdb, lock, tick,
			func(ctx context.Context) error { return work(ctx, number, tick) }); err != nil {
			log.Printf("instance %d: tick %d: %v", number, tick, err)
		}
	}
	return nil
}

// run starts all instances. For each tick, begun is the number of times that the job was begun, and done the
// number of times that it was completed.
func run(ctx context.Context, url string, out io.Writer) (begun, done map[int64]int, err error) {
	var mu sync.Mutex // guards begun, done and out
	begun, done = map[int64]int{}, map[int64]int{}
	work := func(ctx context.Context, instance int, tick int64) error {
		mu.Lock()
		begun[tick]++
		first := begun[tick] == 1
		mu.Unlock()
		if tick == 2 && first {
			return errors.New("out of paper")
		}
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		done[tick]++
		fmt.Fprintf(out, "tick %d: done by instance %d\n", tick, instance)
		return nil
	}
	begin := time.Now()
	failed := make([]error, instances)
	var all sync.WaitGroup
	for i := range instances {
		all.Go(func() { failed[i] = instance(ctx, url, i+1, begin, work) })
	}
	all.Wait()
	return begun, done, errors.Join(failed...)
}

func main() {
	exampleredis.Main(func(ctx context.Context, url string) error {
		_, _, err := run(ctx, url, os.Stdout)
		return err
	})
}
