package docs

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/rlock"
)

// What testing.md says of miniredis.

var bg = context.Background()

func newSession(t *testing.T, rdb *redis.Client) *rlock.Session {
	t.Helper()
	s, err := rlock.NewSession(rdb, rlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// processes are two sessions with locks of one name.
func processes(t *testing.T) (server *miniredis.Miniredis, mine, theirs *rlock.Mutex) {
	server = miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return server, rlock.New(newSession(t, rdb), "x"), rlock.New(newSession(t, rdb), "x")
}

func lock(t *testing.T, m *rlock.Mutex, options ...rlock.Option) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := m.TryLock(bg, options...)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, hold
}

func locked(m *rlock.Mutex) bool {
	_, hold, err := m.TryLock(bg)
	_ = hold.Unlock(bg)
	return errors.Is(err, rlock.ErrLocked)
}

func TestMiniredisFreesNoLockUntilItIsFastForwarded(t *testing.T) {
	const lease = time.Second // longer than a request takes
	server, mine, theirs := processes(t)
	ctx, hold := lock(t, mine, rlock.WithLease(lease))
	<-ctx.Done() // by the holder's own clock
	if !locked(theirs) {
		t.Error("it is free without FastForward")
	}
	server.SetTime(time.Now().Add(time.Hour))
	if !locked(theirs) {
		t.Error("it is free by SetTime alone")
	}
	server.FastForward(lease)
	if locked(theirs) {
		t.Error("it is not free after FastForward")
	}
	if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
}

func TestWhoeverHoldsALockLearnsOfAFastForwardWithItsNextRequest(t *testing.T) {
	server, mine, theirs := processes(t)
	ctx, hold := lock(t, mine)
	server.FastForward(31 * time.Second)
	if locked(theirs) {
		t.Error("its lease is not over")
	}
	if ctx.Err() != nil {
		t.Error("the holder knows already")
	}
	if err := hold.Extend(bg, time.Minute); !errors.Is(err, rlock.ErrLost) || context.Cause(ctx) != rlock.ErrLost {
		t.Errorf("Extend: %v, cause %v", err, context.Cause(ctx))
	}
	_ = hold.Unlock(bg)
}

func TestWithClockTTLMiniredisGoesByTheTimeThatATestSets(t *testing.T) {
	server, mine, theirs := processes(t)
	server.ClockTTL(true)
	start := time.Now()
	server.SetTime(start)
	_, hold := lock(t, mine)
	last := hold.Token()
	for range 5 { // while its clock stands
		if !locked(theirs) {
			t.Error("it is free")
		}
		_ = hold.Unlock(bg)
		if _, hold = lock(t, mine); hold.Token() <= last {
			t.Errorf("token %d after %d", hold.Token(), last)
		}
		last = hold.Token()
	}
	server.SetTime(start.Add(31 * time.Second))
	_, next := lock(t, theirs)
	if next.Token() <= last {
		t.Errorf("token %d after %d", next.Token(), last)
	}
	if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	_ = next.Unlock(bg)
}

func TestForceUnlockWakesWaitersAndTheHolderLearnsIt(t *testing.T) {
	_, mine, theirs := processes(t)
	ctx, hold := lock(t, mine)
	got := make(chan *rlock.Hold)
	go func() {
		_, hold, err := theirs.Lock(bg)
		if err != nil {
			t.Error(err)
		}
		got <- hold
	}()
	if held, err := mine.ForceUnlock(bg); !held || err != nil {
		t.Error(held, err)
	}
	next := <-got // its lease of 30 s has not passed
	if err := hold.Extend(bg, time.Minute); !errors.Is(err, rlock.ErrLost) || context.Cause(ctx) != rlock.ErrLost {
		t.Errorf("Extend: %v, cause %v", err, context.Cause(ctx))
	}
	_ = next.Unlock(bg)
}

func TestSetErrorIsAnOutage(t *testing.T) {
	server, mine, theirs := processes(t)
	_, hold := lock(t, mine)
	server.SetError("LOADING Redis is loading the dataset in memory")
	if _, _, err := theirs.TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
		t.Errorf("TryLock: %v", err)
	}
	if err := hold.Extend(bg, time.Minute); err == nil || errors.Is(err, rlock.ErrLost) || hold.Err() != nil {
		t.Errorf("Extend: %v, Err %v", err, hold.Err())
	}
	server.SetError("")
	if err := hold.Unlock(bg); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

func TestHoursPassInABubbleWithMiniredis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		defer server.Close()
		rdb := redis.NewClient(&redis.Options{
			Addr:   "127.0.0.1:1", // never dialed
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		})
		defer func() { _ = rdb.Close() }()
		session, err := rlock.NewSession(rdb, rlock.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close() }()

		ctx, hold, err := rlock.New(session, "orders:42").Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		if ctx.Err() != nil {
			t.Error("it was not renewed")
		}
		server.FlushAll() // Redis forgets it
		start := time.Now()
		<-ctx.Done()
		if took := time.Since(start); took > 10*time.Second || !errors.Is(context.Cause(ctx), rlock.ErrLost) {
			t.Errorf("noticed after %v, with %v", took, context.Cause(ctx))
		}
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Error(err)
		}
	})
}
