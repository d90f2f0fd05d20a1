package multilock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// whole makes the server carry out each pipeline of this client as a whole, as Redis does. (The server of
// these tests takes turns between connections after each command.) Each pipeline arrives after a random time.
func whole(rdb *redis.Client) *redis.Client {
	turn := make(chan struct{}, 1) // fake time would stand still while a goroutine waits for a mutex
	rdb.AddHook(testlock.Around(func(cmds []redis.Cmder, next func() error) error {
		if name := cmds[0].Name(); name != "evalsha" && name != "eval" { // sets up a connection
			return next()
		}
		time.Sleep(rand.N(time.Millisecond))
		turn <- struct{}{}
		defer func() { <-turn }()
		return next()
	}))
	return rdb
}

// triers returns one MultiLock for each caller. All have the same three members, whose names begin with
// prefix, but in different orders. The callers share new sessions equally.
func triers(
	t *testing.T, rdb *redis.Client, sessions, callers int, prefix string,
) (all []*multilock.MultiLock) {
	var s *rlock.Session
	for i := range callers {
		if i%(callers/sessions) == 0 {
			s = testlock.NewSession(t, rdb)
		}
		var members []rlock.Locker
		for n := range 3 {
			members = append(members, rlock.New(s, fmt.Sprint(prefix, (n+i)%3)))
		}
		all = append(all, multilock.New(members...))
	}
	return all
}

// tryAtOnce calls TryLock of all MultiLocks at the same time, each in its own goroutine. It unlocks those
// that succeed, and returns their number.
func tryAtOnce(t *testing.T, all []*multilock.MultiLock) (taken int) {
	t.Helper()
	holds := make([]*rlock.Hold, len(all))
	start := make(chan struct{})
	var tries sync.WaitGroup
	for i, l := range all {
		tries.Go(func() {
			<-start
			_, hold, err := l.TryLock(bg)
			if err != nil && !errors.Is(err, rlock.ErrLocked) {
				t.Error(err)
			}
			holds[i] = hold
		})
	}
	close(start)
	tries.Wait()
	for _, hold := range holds {
		if hold != nil {
			taken++
			testlock.Unlock(t, hold)
		}
	}
	return taken
}

// Proves: MultiLock
func TestOneOfManyThatTryAFreeMultiLockAtOnceGetsIt(t *testing.T) {
	const callers, runs = 10, 10
	for _, sessions := range []int{1, callers} {
		for what, warm := range map[string]func(i int) bool{
			"new":           func(int) bool { return false },
			"known":         func(int) bool { return true },
			"new and known": func(i int) bool { return i%2 == 0 },
		} {
			t.Run(fmt.Sprint(sessions, " ", what), func(t *testing.T) {
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					rdb := whole(w.Client)
					for run := range runs {
						all := triers(t, rdb, sessions, callers, fmt.Sprint(run, " "))
						for i, l := range all {
							if warm(i) {
								testlock.Works(t, l)
							}
						}
						if taken := tryAtOnce(t, all); taken != 1 {
							t.Fatalf("run %d: %d of %d got it", run, taken, callers)
						}
					}
				})
			})
		}
	}
}
