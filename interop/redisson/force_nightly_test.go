//go:build nightly

package redisson

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// A party is a user of the lock, in Go or in the JVM.
type party struct {
	lock   func() <-chan error
	unlock func() error
	force  func() (bool, error)
	lost   func(error) bool // reports whether an error of unlock means that the lock was lost
}

func goParty(m testlock.Mutex) party {
	var hold *rlock.Hold // set before lock sends its result
	return party{
		lock: func() <-chan error {
			done := make(chan error, 1)
			go func() {
				var err error
				_, hold, err = m.Lock(bg, rlock.WithLease(lease))
				done <- err
			}()
			return done
		},
		unlock: func() error { return hold.Unlock(bg) },
		force:  func() (bool, error) { return m.ForceUnlock(bg) },
		lost:   func(err error) bool { return errors.Is(err, rlock.ErrLost) },
	}
}

func jvmParty(th thread, name string) party {
	return party{
		lock: func() <-chan error {
			done := make(chan error, 1)
			answered := th.start("lock", name)
			go func() { done <- (<-answered).err }()
			return done
		},
		unlock: func() error {
			_, err := th.try("unlock", name)
			return err
		},
		force: func() (bool, error) {
			was, err := th.try("forceUnlock", name)
			return was == "true", err
		},
		lost: func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "IllegalMonitorStateException")
		},
	}
}

// The lease is longer than patience, so the test fails if a waiter gets no message.
func TestWhoeverForcesTheLockOfWhomeverWhoWaitsGetsIt(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	rdb := server.Client(t)
	jvm := dial(t, lease, server.Addr)
	for name, of := range map[string]struct{ holderInJVM, waiterInJVM, forcerInJVM bool }{
		"go-go-go":    {false, false, false},
		"go-go-jvm":   {false, false, true},
		"go-jvm-go":   {false, true, false},
		"go-jvm-jvm":  {false, true, true},
		"jvm-go-go":   {true, false, false},
		"jvm-go-jvm":  {true, false, true},
		"jvm-jvm-go":  {true, true, false},
		"jvm-jvm-jvm": {true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			on := func(who string, inJVM bool) party {
				if inJVM {
					return jvmParty(jvm.thread(who), name)
				}
				return goParty(redisson.New(testlock.NewSession(t, rdb), name))
			}
			holder, waiter, forcer := on("holder", of.holderInJVM), on("waiter", of.waiterInJVM),
				on("forcer", of.forcerInJVM)
			testlock.Must(t, receive(t, "the first has the lock", holder.lock()))
			waiting := waiter.lock()
			subscribed(t, name, rdb)
			if was, err := forcer.force(); err != nil || !was {
				t.Fatalf("forced: %v, %v", was, err)
			}
			testlock.Must(t, receive(t, "the waiter has the lock", waiting))
			if err := holder.unlock(); !holder.lost(err) {
				t.Errorf("unlock of who has lost it: %v", err)
			}
			if rdb.Exists(bg, name).Val() != 1 {
				t.Error("the waiter has lost the lock again")
			}
			testlock.Must(t, waiter.unlock())
		})
	}
}

func TestGoHearsOfAJVMsForceByTheNextRenewal(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	a := dial(t, lease, server.Addr).thread("a")
	ctx, hold := testlock.Lock(t, redisson.New(testlock.NewSession(t, server.Client(t),
		rlock.WithWatchdogTimeout(short)), "x"), bg)
	if a.do("forceUnlock", "x") != "true" || !a.tryLock("x") {
		t.Error("the JVM could not force the lock, and take it")
	}
	receive(t, "Go hears of it", ctx.Done())
	testlock.WantError(t, "the cause, in Go", context.Cause(ctx), rlock.ErrLost)
	testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	if n := a.number("holdCount", "x"); n != 1 {
		t.Errorf("after the Unlock of who had lost it, the JVM's hold count is %d", n)
	}
	a.do("unlock", "x")
}
