package multilock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// redServers starts n real servers. It also returns a function that returns the RedLock "x" of a new process.
func redServers(
	t *testing.T, n int,
) (all []*testredis.Server, redLock func(...rlock.SessionOption) *multilock.RedLock) {
	for range n {
		all = append(all, testredis.Start(t))
	}
	return all, func(options ...rlock.SessionOption) *multilock.RedLock {
		var ss []*rlock.Session
		for _, s := range all {
			ss = append(ss, testlock.NewSession(t, s.Client(t), options...))
		}
		return testlock.RedLock("x", ss...)
	}
}

func TestARedLockGoesOnWithoutTwoOfFiveProcesses(t *testing.T) {
	t.Parallel()
	all, redLock := redServers(t, 5)
	m := redLock()
	_, hold := testlock.Lock(t, m, bg)
	got := testlock.Go(testlock.Bounded(t), redLock())
	testlock.Eventually(t, "all have granted it", func() bool { return testlock.Inspect(t, m).Servers == 5 })
	all[0].Kill()
	all[1].Freeze()
	testlock.Must(t, hold.Extend(bg, time.Minute))
	testlock.Unlock(t, hold)
	next := testlock.Granted(t, got)
	testlock.WantAfter(t, next, hold.Token())
	all[0].Restart(t)
	all[1].Thaw()
	_, _, err := m.TryLock(bg)
	testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
	testlock.Eventually(t, "all have granted it", func() bool { return testlock.Inspect(t, m).Servers == 5 })
	testlock.Unlock(t, next)
	testlock.Works(t, m)
}

// Before RedLocks had a line, rights to the keys of the lock were sufficient. A user with only these rights
// can still use RedLocks: waiters make rounds without a line.
func TestWithoutRightsToTheLineARedLockWorks(t *testing.T) {
	t.Parallel()
	all, _ := redServers(t, 3)
	log := new(testlock.Log)
	waits := make(testlock.Waits, 10)
	redLock := func() *multilock.RedLock {
		var ss []*rlock.Session
		for _, s := range all {
			rdb := testlock.User(t, s, "user", "~lockline:q:*", "&lockline:*", "+@all")
			logger := log.Logger()
			ss = append(ss, testlock.NewSession(t, rdb, rlock.WithLogger(logger), rlock.WithObserver(waits)))
		}
		return testlock.RedLock("x", ss...)
	}
	_, hold := testlock.Lock(t, redLock(), bg)
	locked := make(chan error)
	for range 2 {
		m := redLock()
		go func() { locked <- testlock.Cycle(testlock.Bounded(t), m) }()
		testlock.Receive(t, "it waits", waits)
	}
	testlock.Eventually(t, "logged", func() bool {
		return log.Count("cannot queue on a server") >= 2 && log.Count("NOPERM") >= 2
	})
	testlock.Unlock(t, hold)
	for range 2 {
		testlock.Must(t, <-locked)
	}
	for i, s := range all {
		if n := s.Client(t).Exists(bg, turnKey).Val(); n > 0 {
			t.Errorf("server %d has a line", i)
		}
	}
}
