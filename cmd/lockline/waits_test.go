package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// begin starts a Lock, which waits until the test ends. begin returns when the session s is in the queue.
func begin(
	t *testing.T, lock rlock.Locker, look func(context.Context) (rlock.State, error), s *rlock.Session,
) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, hold, _ := lock.Lock(ctx)
		_ = hold.Unlock(context.Background())
	}()
	t.Cleanup(func() { cancel(); <-done })
	testlock.Eventually(t, "in the queue", func() bool {
		now, err := look(t.Context())
		return err == nil && slices.ContainsFunc(now.Queue, func(w rlock.Waiter) bool {
			return w.Session == s.ID()
		})
	})
}

// waitsNow returns all waits, and the circles of waits that have lasted for the time least or longer.
func waitsNow(t *testing.T, m *miniredis.Miniredis, least time.Duration) ([]waitEntry, []waitingCircle) {
	t.Helper()
	o := &operator{prefix: "lockline", kinds: lockKinds, pattern: "*"}
	testlock.Must(t, o.open(t.Context(), target{URL: "redis://" + m.Addr()}))
	defer o.close()
	states, err := o.list(t.Context())
	testlock.Must(t, err)
	all, found, err := o.waitsOf(t.Context(), states, least)
	testlock.Must(t, err)
	return all, found
}

func twoSessions(t *testing.T, m *miniredis.Miniredis) (a, b *rlock.Session) {
	rdb := testlock.Client(t, m.Addr())
	return testlock.NewSession(t, rdb, rlock.WithLabel("till 3")),
		testlock.NewSession(t, rdb, rlock.WithLabel("till 4"))
}

func TestSessionsThatWaitForEachOtherAreNamed(t *testing.T) {
	m := theirRedis(t)
	a, b := twoSessions(t, m)
	x, y := rlock.New(a, "x"), fairlock.New(b, "y")
	takenX, takenY := take(t, x), take(t, y)
	begin(t, fairlock.New(a, "y"), y.Inspect, a)
	begin(t, rlock.New(b, "x"), x.Inspect, b)

	var waits []waitEntry
	testlock.Eventually(t, "waits of a second", func() bool {
		waits = operateJSON[[]waitEntry](t, m.Addr(), "ls", "--waits")
		return len(waits) == 2 && waits[0].Circle == 1 && waits[1].Circle == 1
	})
	for i, want := range []struct {
		lock, kind     string
		waiter, holder *rlock.Session
		token          int64
	}{{"x", "reentrant", b, a, takenX.Token()}, {"y", "fair", a, b, takenY.Token()}} {
		w := waits[i]
		if w.Lock != want.lock || w.Kind != want.kind || w.Waiter.Session != want.waiter.ID() ||
			len(w.Holders) != 1 || w.Holders[0].Session != want.holder.ID() ||
			w.Holders[0].Token != want.token || w.Waiter.PID != os.Getpid() ||
			time.Since(w.Since) < leastWait || time.Since(w.Since) > time.Minute {
			t.Errorf("%+v", w)
		}
	}

	host, _ := os.Hostname()
	three := fmt.Sprintf("process %d on %s (till 3)", os.Getpid(), host)
	four := fmt.Sprintf("process %d on %s (till 4)", os.Getpid(), host)
	out := said(t, m.Addr(), "ls", "--waits", "y")
	if strings.Count(out, "\n") != 5 || !strings.Contains(out, "CIRCLE") ||
		!strings.Contains(out, three+"  "+four) || !strings.Contains(out, circleDoubt) ||
		!strings.Contains(out, waitsPage) {
		t.Errorf("ls --waits y:\n%s", out)
	}
	out = said(t, m.Addr(), "doctor")
	for _, part := range []string{"warning  waits", circleDoubt,
		three + ` waits for "y" (fair) since 20`, four + ` holds since 20`,
		four + ` waits for "x" (reentrant) since 20`, three + ` holds since 20`} {
		if !strings.Contains(out, part) {
			t.Errorf("doctor does not say %q:\n%s", part, out)
		}
	}
	for _, f := range operateJSON[[]finding](t, m.Addr(), "doctor") {
		if want := map[bool]int{true: 1}[f.Check == "waits"]; len(f.Circles) != want {
			t.Errorf("%+v", f)
		}
	}
}

func TestWatchMarksSessionsThatWaitForEachOther(t *testing.T) {
	m := theirRedis(t)
	a, b := twoSessions(t, m)
	x, y := rlock.New(a, "x"), fairlock.New(b, "y")
	take(t, x)
	take(t, y)
	begin(t, fairlock.New(a, "y"), y.Inspect, a)
	begin(t, rlock.New(b, "x"), x.Inspect, b)
	watch := func(args ...string) string {
		out := &safeBuffer{}
		ctx, cancel := context.WithCancel(t.Context())
		code := make(chan int)
		go func() {
			line := []string{"lockline", "watch", "--redis", "redis://" + m.Addr(), "--interval", "2ms",
				"--kind", "r"}
			code <- run(ctx, append(append(line, args...), "x"), out, &bytes.Buffer{})
		}()
		testlock.Eventually(t, "marked", func() bool { return strings.Contains(out.String(), "ircle") })
		cancel()
		<-code
		return strings.TrimSpace(out.String()[strings.LastIndex(strings.TrimSpace(out.String()), "\n")+1:])
	}
	if line := watch(); !strings.Contains(line, "; suspected circle since 20") ||
		!strings.Contains(line, `waits for "y" (fair)`) {
		t.Error(line)
	}
	var s sight
	testlock.Must(t, json.Unmarshal([]byte(watch("--json")), &s))
	if len(s.Circle) != 2 || s.Circle[1].Lock != "y" {
		t.Errorf("%+v", s)
	}
}

func TestWaitsThatEndByThemselvesAreNoCircle(t *testing.T) {
	for name, test := range map[string]struct {
		// wait makes session a wait for a lock that session b holds. The session free waits for nothing.
		wait    func(t *testing.T, a, b, free *rlock.Session)
		circles int
	}{
		"another lock": {func(t *testing.T, a, b, _ *rlock.Session) {
			take(t, rlock.New(b, "other"))
			begin(t, rlock.New(a, "other"), rlock.New(a, "other").Inspect, a)
		}, 1},
		"a writer, for a reader": {func(t *testing.T, a, b, _ *rlock.Session) {
			take(t, rwlock.New(b, "other").RLocker())
			begin(t, rwlock.New(a, "other"), rwlock.New(a, "other").Inspect, a)
		}, 1},
		"a permit of a holder that waits": {func(t *testing.T, a, b, _ *rlock.Session) {
			all := semaphore.New(b, "other", 2)
			take(t, all.Locker(2))
			begin(t, semaphore.New(a, "other", 2).Locker(1), all.Inspect, a)
		}, 1},
		"a permit that a session without a wait has, too": {func(t *testing.T, a, b, free *rlock.Session) {
			all := semaphore.New(b, "other", 2)
			take(t, all.Locker(1))
			take(t, semaphore.New(free, "other", 2).Locker(1))
			begin(t, semaphore.New(a, "other", 2).Locker(1), all.Inspect, a)
		}, 0},
		"a lock that was unlocked, and stays taken": {func(t *testing.T, a, b, _ *rlock.Session) {
			hold := testlock.Take(t, fairlock.New(b, "other"), rlock.HoldAtLeast(time.Minute))
			testlock.Must(t, hold.Unlock(t.Context()))
			begin(t, fairlock.New(a, "other"), fairlock.New(a, "other").Inspect, a)
		}, 0},
		"the leader of an election": {func(t *testing.T, a, b, _ *rlock.Session) {
			_, leads, err := election.New(b, "other").Campaign(t.Context(), "here")
			testlock.Must(t, err)
			t.Cleanup(func() { _ = leads.Resign(context.Background()) })
			begin(t, fairlock.New(a, "other"), fairlock.New(a, "other").Inspect, a)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := theirRedis(t)
			a, b := twoSessions(t, m)
			take(t, rlock.New(a, "one"))
			begin(t, rlock.New(b, "one"), rlock.New(b, "one").Inspect, b)
			test.wait(t, a, b, testlock.NewSession(t, testlock.Client(t, m.Addr())))
			all, found := waitsNow(t, m, 0)
			if len(all) != 2 || len(found) != test.circles {
				t.Errorf("%d waits, %d circles, want %d: %v", len(all), len(found), test.circles, found)
			}
			if _, found := waitsNow(t, m, time.Minute); len(found) != 0 {
				t.Errorf("of waits that began just now: %v", found)
			}
		})
	}
}
