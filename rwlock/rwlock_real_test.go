package rwlock_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Proves: read-write lock
func TestNobodyIsBesideAWriter(t *testing.T) {
	t.Parallel()
	const sessions, goroutines, each = 4, 4, 40
	locks := locksOf(t, testlock.Shared(t), sessions)
	var readers, writers, reads, writes atomic.Int64
	var last atomic.Int64 // token of the last writer
	write := func(l rlock.Locker, reader rlock.Locker) error {
		ctx, hold, err := l.Lock(bg)
		if err != nil {
			return err
		}
		if writers.Add(1) != 1 || readers.Load() != 0 {
			t.Error("somebody is beside a writer")
		}
		if before := last.Swap(hold.Token()); before >= hold.Token() {
			t.Errorf("token %d behind %d", hold.Token(), before)
		}
		if reader == nil {
			writers.Add(-1)
			return hold.Unlock(bg)
		}
		_, r, err := reader.Lock(ctx) // the writer goes on as a reader
		if err != nil {
			return err
		}
		writers.Add(-1)
		readers.Add(1)
		err = hold.Unlock(bg)
		readers.Add(-1)
		return errors.Join(err, r.Unlock(bg))
	}
	read := func(l rlock.Locker) error {
		_, hold, err := l.Lock(bg)
		if err != nil {
			return err
		}
		readers.Add(1)
		if writers.Load() != 0 {
			t.Error("a reader is beside a writer")
		}
		if hold.Token() < last.Load() {
			t.Errorf("a reader's token %d is below the writer's before it, %d", hold.Token(), last.Load())
		}
		readers.Add(-1)
		return hold.Unlock(bg)
	}
	var wg sync.WaitGroup
	for i, l := range locks {
		for g := range goroutines {
			wg.Go(func() {
				for n := range each {
					var err error
					switch {
					case (n+i+g)%5 != 0:
						reads.Add(1)
						err = read(l.RLocker())
					case n%2 == 0:
						writes.Add(1)
						err = write(l, l.RLocker())
					default:
						writes.Add(1)
						err = write(l, nil)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if reads.Load() == 0 || writes.Load() == 0 {
		t.Errorf("%d reads, %d writes", reads.Load(), writes.Load())
	}
	isFree(t, locks[0])
}

// There are more dead readers than a Lua function can return values.
// Proves: read-write lock
func TestManyDeadReadersDoNotMakeAWriterWaitLonger(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	l, key := locksOf(t, rdb, 1)[0], testlock.Prefix(rdb)+":w:{x}"
	const dead = 10_000
	now := rdb.Time(bg).Val().UnixMicro()
	reader := testlock.Take(t, l.RLocker()) // so that the keys have an expiry
	pipe := rdb.Pipeline()
	for i := range dead { // as dead sessions leave them
		owner := fmt.Sprint("gone:", i)
		pipe.ZAdd(bg, key+":h", redis.Z{Score: float64(now - 1000), Member: owner})
		pipe.HSet(bg, key, "held "+owner, "1 1 - 1@h ")
	}
	pipe.HSet(bg, key, "shared", dead)
	_, err := pipe.Exec(bg)
	testlock.Must(t, err)
	testlock.Unlock(t, reader)
	_, _, _ = l.TryLock(bg)
	if n := rdb.ZCard(bg, key+":h").Val(); n < dead-3000 {
		t.Errorf("two requests have cleared %d away, for which others wait", dead-n)
	}
	testlock.Works(t, l)
	if n := rdb.Exists(bg, key+":h").Val(); n != 0 {
		t.Error("the leases stay")
	}
	if shared := rdb.HExists(bg, key, "shared").Val(); shared || rdb.HLen(bg, key).Val() > 20 {
		t.Errorf("the hash has %d fields", rdb.HLen(bg, key).Val())
	}
}
