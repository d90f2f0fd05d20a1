package rlock_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// An endpoint moves to the promoted replica. The old master becomes a replica, and keeps its connections.
func TestNoSessionStarvesWhenAnEndpointIsMovedToThePromotedReplica(t *testing.T) {
	t.Parallel()
	for kind, newLock := range queued {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			old := testredis.Start(t)
			promoted := old.StartReplica(t)
			endpoint := faultproxy.New(t, old.Addr)
			nobodyStarves(t, newLock, func() *redis.Client { return endpoint.Client(t) }, func() {
				host, port, err := net.SplitHostPort(promoted.Addr)
				testlock.Must(t, err)
				testlock.Must(t, promoted.Client(t).Do(bg, "REPLICAOF", "NO", "ONE").Err())
				testlock.Must(t, old.Client(t).Do(bg, "REPLICAOF", host, port).Err())
				endpoint.LeadTo(func() (net.Conn, error) { return net.Dial("tcp", promoted.Addr) })
			})
		})
	}
}

// nobodyStarves checks that sessions that wait while the master moves get the lock, although other sessions
// come later.
func nobodyStarves(
	t *testing.T, newLock func(*rlock.Session) rlock.Locker, client func() *redis.Client, move func(),
) {
	t.Helper()
	ctx, stop := context.WithCancel(bg)
	var turns [4]atomic.Int64
	// If only the old master has got a release, the next holder waits for this lease to end.
	lease := rlock.WithWatchdogTimeout(5 * time.Second)
	contend := func(i int) <-chan struct{} {
		l, done := newLock(testlock.NewSession(t, client(), lease)), make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				if _, hold, err := l.Lock(ctx); err == nil {
					turns[i].Add(1)
					_ = hold.Unlock(bg)
				}
			}
		}()
		return done
	}
	a, b := contend(0), contend(1)
	reach := func(n int64, all []atomic.Int64) func() bool {
		return func() bool {
			for i := range all {
				if all[i].Load() < n {
					return false
				}
			}
			return true
		}
	}
	testlock.Eventually(t, "both have turns", reach(100, turns[:2]))
	move()
	for i := range turns[:2] {
		turns[i].Store(0)
	}
	start := time.Now()
	c, d := contend(2), contend(3)
	testlock.Eventually(t, "all have turns", reach(100, turns[:]))
	t.Log(fmt.Sprint("after ", time.Since(start)))
	stop()
	for _, done := range []<-chan struct{}{a, b, c, d} {
		testlock.Receive(t, "the end", done)
	}
}

// A script that reads calls HDEL to find out whether it runs on a master. A master that refuses writes also
// refuses this HDEL, but the script must return its reply.
func TestAMasterThatRefusesToWriteAnswersWhatItKnows(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string][2]string{
		"NOREPLICAS": {"min-replicas-to-write", "1"},
		"OOM":        {"maxmemory", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			admin := server.Client(t)
			held := rlock.New(testlock.NewSession(t, server.Client(t)), "held")
			_, hold := testlock.Lock(t, held, bg)
			s := testlock.NewSession(t, server.Client(t))
			testlock.Must(t, admin.ConfigSet(bg, setting[0], setting[1]).Err())
			if st, err := rlock.New(s, "held").Inspect(bg); err != nil || !st.Held {
				t.Errorf("Inspect: %+v, %v", st, err)
			}
			_, _, err := rlock.New(s, "held").TryLock(bg)
			testlock.WantError(t, "TryLock of what is held", err, rlock.ErrLocked)
			_, _, err = rlock.New(s, "free").TryLock(bg)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("TryLock of what is free: %v", err)
			}
			testlock.Must(t, admin.ConfigSet(bg, setting[0], "0").Err())
			testlock.Unlock(t, hold)
		})
	}
}
