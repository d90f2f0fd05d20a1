package rlock_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/rlock"
)

// entrance is one goroutine's Lock.
type entrance struct {
	ctx  context.Context
	hold *rlock.Hold
	err  error
}

// ask starts goroutines that lock, and returns when all of them wait or are in.
func ask(m *rlock.Mutex, n int, options ...rlock.Option) <-chan entrance {
	in := make(chan entrance, n)
	for range n {
		go func() {
			ctx, hold, err := m.Lock(bg, options...)
			in <- entrance{ctx, hold, err}
		}()
		synctest.Wait()
	}
	time.Sleep(time.Millisecond) // they gather
	synctest.Wait()
	return in
}

func TestThoseWhoStoodBehindALostLockAskAgain(t *testing.T) {
	simulated(t, func(t *testing.T, w *wire) {
		m := fairlock.New(newSession(t, w.rdb), "x")
		_, first := lock(t, m, bg)
		in := ask(m, 3)
		unlock(t, first)
		got := <-in
		if _, err := m.ForceUnlock(bg); err != nil {
			t.Fatal(err)
		}
		<-got.ctx.Done() // a renewal finds it lost
		for range 2 {
			select {
			case next := <-in:
				if next.err != nil {
					t.Fatal(next.err)
				}
				unlock(t, next.hold)
			case <-time.After(time.Hour):
				t.Fatal("the lock is free, and nobody asks for it")
			}
		}
		if err := got.hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Error(err)
		}
	})
}

func TestALockIsRenewedForWhoItIsHandedToThoughItWasNotForTheOneBefore(t *testing.T) {
	for kind, newMutex := range kinds {
		t.Run(kind, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *wire) {
				m := newMutex(newSession(t, w.rdb, rlock.WithStreak(time.Hour)), "x")
				_, first := lock(t, m, bg)
				in := ask(m, 2)
				unlock(t, first)
				outer := <-in
				_, inner := lock(t, m, outer.ctx, rlock.WithLease(20*time.Second))
				unlock(t, outer.hold)
				unlock(t, inner)
				last := <-in
				if last.hold.Token() != inner.Token()+1 {
					t.Fatal("it was not handed over in memory")
				}
				time.Sleep(time.Hour)
				if err := last.hold.Err(); err != nil {
					t.Fatal(err)
				}
				unlock(t, last.hold)
			})
		})
	}
}

func TestWhoIsCanceledAtTheHandOverNeverHeldIt(t *testing.T) {
	for kind, newMutex := range kinds {
		t.Run(kind, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *wire) {
				var rec recorder
				m := newMutex(newSession(t, w.rdb, rlock.WithObserver(&rec), rlock.WithStreak(time.Hour)), "x")
				for range 100 {
					_, holding := lock(t, m, bg)
					in := ask(m, 1) // whose turn comes first
					ctx, cancel := context.WithCancel(bg)
					left := make(chan error)
					go func() {
						_, hold, err := m.Lock(ctx)
						if err == nil {
							err = hold.Unlock(bg)
						}
						left <- err
					}()
					time.Sleep(time.Millisecond)
					synctest.Wait()
					unlock(t, holding)
					got := <-in
					cancel()
					if err := got.hold.Unlock(bg); err != nil {
						t.Error(err)
					}
					if err := <-left; err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					synctest.Wait()
					if inspect(t, m).Held {
						t.Fatal("it is held by nobody")
					}
				}
				acquired, ended := map[int64]int{}, map[int64]int{}
				for _, e := range rec.events {
					switch e.Kind {
					case rlock.Acquired:
						acquired[e.Token]++
					case rlock.Released, rlock.Lost:
						ended[e.Token]++
					}
				}
				if !maps.Equal(acquired, ended) {
					for token, n := range ended {
						if acquired[token] != n {
							t.Fatalf("acquired %d times: %d, which ended %d times", acquired[token], token, n)
						}
					}
					t.Fatal("what was acquired did not end")
				}
			})
		})
	}
}

// changeOfMind calls f when the server has answered a lock request, and before its sender knows.
type changeOfMind struct{ f func() }

func (changeOfMind) DialHook(next redis.DialHook) redis.DialHook { return next }

func (changeOfMind) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *changeOfMind) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if reply, ok := cmd.(interface{ Val() string }); ok && strings.HasPrefix(reply.Val(), "G ") {
			c.f()
		}
		return err
	}
}

func TestAGrantThatNobodyWantedGivesItsTokensBack(t *testing.T) {
	for kind, newMutex := range kinds {
		t.Run(kind, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *wire) {
				m := newMutex(newSession(t, w.rdb), "x")
				_, hold := lock(t, m, bg)
				first := hold.Token()
				unlock(t, hold)
				var hook changeOfMind
				w.rdb.AddHook(&hook)
				for range 50 {
					ctx, cancel := context.WithCancel(bg)
					hook.f = func() {
						cancel()
						time.Sleep(time.Microsecond) // its caller leaves
					}
					if _, _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Microsecond)
					synctest.Wait()
				}
				hook.f = func() {}
				_, hold = lock(t, m, bg)
				// Else they would run ahead of the clock, and fall back when Redis forgets the last one.
				if ahead := hold.Token() - time.Now().UnixMicro(); ahead > 1000 {
					t.Errorf("token %d after %d is ahead of the clock by %d us", hold.Token(), first, ahead)
				}
				unlock(t, hold)
			})
		})
	}
}

func TestCloseEndsALockThatNothingElseCanEnd(t *testing.T) {
	for kind, newMutex := range kinds {
		for _, call := range []string{"Lock", "TryLock"} {
			t.Run(kind+" "+call, func(t *testing.T) {
				simulated(t, func(t *testing.T, w *wire) {
					s := newSession(t, w.rdb)
					m := newMutex(s, "x")
					_, hold := lock(t, m, bg)
					unlock(t, hold)
					w.down.Store(true)
					ended := make(chan error)
					go func() {
						f := m.Lock
						if call == "TryLock" {
							f = m.TryLock
						}
						_, _, err := f(bg)
						ended <- err
					}()
					synctest.Wait()
					start := time.Now()
					go s.Close()
					if err := <-ended; !errors.Is(err, rlock.ErrClosed) {
						t.Error(err)
					}
					// One request may be under way, which nothing interrupts; no other is sent.
					if took := time.Since(start); took > w.rdb.Options().ReadTimeout {
						t.Errorf("after %v", took)
					}
				})
			})
		}
	}
}
