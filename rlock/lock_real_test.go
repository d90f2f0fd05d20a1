package rlock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestAServerShortOfMemoryRenewsAndReleasesWhatIsHeld(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	m := rlock.New(testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(5*time.Second)), "x")
	ctx, outer := testlock.Lock(t, m, bg)
	_, nested := testlock.Lock(t, m, ctx)
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "1").Err())
	testlock.Unlock(t, nested) // a full server refuses the new count
	testlock.Renewed(t, outer, 3*time.Second)
	if ctx.Err() != nil {
		t.Fatalf("lost: %v", context.Cause(ctx))
	}
	testlock.Unlock(t, outer)
	if _, _, err := m.Lock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
		t.Errorf("Lock on a full server: %v", err)
	}
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "0").Err())
	_, hold := testlock.Lock(t, m, bg)
	testlock.Unlock(t, hold)
}

// Proves: order
func TestAClientInATurnDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	var grants atomic.Int64 // grants by Redis to the session of the eight goroutines
	many := testlock.NewSession(t, rdb, rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
		if e.Type == rlock.EventAcquired && !e.HandedOver {
			grants.Add(1)
		}
	})))
	lone := rlock.New(testlock.NewSession(t, rdb), "x")
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{}, 8)
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for m := rlock.New(many, "x"); ; {
				_, hold, err := m.Lock(ctx)
				if err != nil {
					return
				}
				if err := hold.Unlock(bg); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	const rounds = 50
	for range rounds {
		testlock.Works(t, lone)
	}
	n := grants.Load()
	cancel()
	for range 8 {
		<-done
	}
	t.Logf("%d grants to the many for %d to the lone one", n, rounds)
	if n > 4*rounds {
		t.Errorf("%d grants to the many for %d to the lone one", n, rounds)
	}
}

// wrongClient checks the errors of locks whose client cannot reach the master of their keys. Each error must
// contain the text use, which says which client to use.
func wrongClient(t *testing.T, addr, use string) {
	rdb := testlock.Client(t, addr)
	session := testlock.NewSession(t, rdb)
	for kind, newLock := range lockers() {
		l := newLock(session, "x")
		_, _, locked := l.Lock(testlock.Bounded(t))
		_, _, tried := l.TryLock(bg)
		for _, err := range []error{locked, tried} {
			if err == nil || !strings.Contains(err.Error(), use) ||
				strings.Count(err.Error(), "lockline: ") != 1 {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
}

func TestAPlainClientOnAClusterIsToldToUseAClusterClient(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	master := cluster.Master(t, "{x}")
	for _, node := range cluster.Nodes {
		if node != master {
			wrongClient(t, node.Addr, "a node of a Cluster, and this client did not go where it says: "+
				"use redis.NewClusterClient")
			return
		}
	}
}

func TestASentinelIsNoPlaceForLocksAndTheErrorSaysSo(t *testing.T) {
	t.Parallel()
	sentinel := testredis.StartSentinel(t, 0)
	wrongClient(t, sentinel.Sentinels[0].Addr,
		"a Sentinel runs none, and knows where the master is: use redis.NewFailoverClient")
}
