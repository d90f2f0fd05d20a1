package multilock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// An arena has locks of some sessions. A third of the locks are fair. Each lock guards a counter in Redis.
type arena struct {
	rdb   *redis.Client
	locks []*rlock.Mutex
}

func newArena(rdb *redis.Client, sessions ...*rlock.Session) *arena {
	a := &arena{rdb: rdb}
	for at, s := range sessions {
		for i := range 6 {
			newMutex := rlock.New
			if i >= 4 {
				newMutex = fairlock.New
			}
			a.locks = append(a.locks, newMutex(s, fmt.Sprint(at, "/", i)))
		}
	}
	return a
}

func counter(prefix string, i int) string { return fmt.Sprint(prefix, ":counter", i) }

// use locks a set of locks, and increases their counters by GET and SET. If two processes did so at once, an
// update would be lost.
func (a *arena) use(prefix string, set []int) error {
	var members []rlock.Locker
	for _, i := range set {
		members = append(members, a.locks[i])
	}
	return multilock.New(members...).Do(bg, func(ctx context.Context) error {
		for _, i := range set {
			n, err := a.rdb.Get(ctx, counter(prefix, i)).Int()
			if err != nil && err != redis.Nil {
				return err
			}
			if err := a.rdb.Set(ctx, counter(prefix, i), n+1, 0).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

const goroutinesEach = 8

// contend is the main function of a process that locks random sets of locks. args has the address of the
// server, the prefix, the seed, and the number of rounds of each goroutine. It prints how often the process
// has held each lock.
func contend(args string) {
	var addr, prefix string
	var seed uint64
	var rounds int
	_, err := fmt.Sscan(args, &addr, &prefix, &seed, &rounds)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	var sessions []*rlock.Session
	for range 2 {
		s, e := rlock.NewSession(rdb, rlock.WithPrefix(prefix))
		sessions, err = append(sessions, s), errors.Join(err, e)
	}
	if err == nil {
		err = newArena(rdb, sessions...).contend(prefix, seed, rounds)
	}
	for _, s := range sessions {
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (a *arena) contend(prefix string, seed uint64, rounds int) (err error) {
	var mu sync.Mutex // guards used and err
	used := make([]int, len(a.locks))
	var wg sync.WaitGroup
	for g := range goroutinesEach {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(g)))
			for range rounds {
				set := rnd.Perm(len(a.locks))[:2+rnd.IntN(4)]
				e := a.use(prefix, set)
				mu.Lock()
				err = errors.Join(err, e)
				for _, i := range set {
					used[i]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	fmt.Println(used)
	return err
}

// contention starts processes that run contend, and then compares the counters with the numbers that the
// processes have printed.
func contention(t *testing.T, processes, rounds int) {
	rdb := testlock.Shared(t)
	prefix := testlock.Prefix(rdb)
	outputs := make([]bytes.Buffer, processes)
	var wg sync.WaitGroup
	for p := range processes {
		cmd := testlock.Child(rdb.Options().Addr, prefix, p, rounds)
		cmd.Stdout, cmd.Stderr = &outputs[p], os.Stderr
		testlock.Must(t, cmd.Start())
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("contender: %v", err)
			}
		})
	}
	wg.Wait()
	a := newArena(rdb, testlock.NewSession(t, rdb), testlock.NewSession(t, rdb))
	used := make([]int, len(a.locks))
	for p := range outputs {
		text := bytes.NewReader(bytes.Trim(outputs[p].Bytes(), "[]\n"))
		for i := range used {
			var n int
			_, err := fmt.Fscan(text, &n)
			testlock.Must(t, err)
			used[i] += n
		}
	}
	for i, used := range used {
		if n, err := rdb.Get(bg, counter(prefix, i)).Int(); err != nil || n != used {
			t.Errorf("%s was held %d times, and counted %d: %v", a.locks[i].Name(), used, n, err)
		}
	}
	if !free(t, a.locks...) {
		t.Error("something is left")
	}
}
