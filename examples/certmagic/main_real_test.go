package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shown is in the README, too.
const shown = `Without locks, 5 instances ask the CA 5 times for one certificate.
With locks in Redis, they ask 1 time.
The instance that asks dies. When its lease is over, another one asks: 2 times in all.
`

func TestShownInTheREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```text\n"+shown+"```\n") {
		t.Error("the README shows something else")
	}
}

func TestOneInstanceAsksTheCA(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), "redis://"+testredis.Start(t).Addr, &out); err != nil {
		t.Error(err)
	}
	if out.String() != shown {
		t.Errorf("it said\n%swant\n%s", &out, shown)
	}
}

// storages makes two that share nothing but their Redis, as those of two processes.
func storages(t *testing.T) (a, b *storage) {
	server := testredis.Start(t)
	made := func() *storage {
		session, err := rlock.NewSession(server.Client(t), rlock.WithWatchdogTimeout(lease), rlock.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		return newStorage(&certmagic.FileStorage{Path: t.TempDir()}, session)
	}
	return made(), made()
}

func expectTryLock(t *testing.T, s *storage, ctx context.Context, want bool) {
	t.Helper()
	if got, err := s.TryLock(ctx, "name"); got != want || err != nil {
		t.Errorf("TryLock: %t, %v, want %t", got, err, want)
	}
}

func unlock(t *testing.T, s *storage) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Unlock(ended, "name"); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

func TestCallsExcludeEachOtherWhateverTheirContext(t *testing.T) {
	t.Parallel()
	a, b := storages(t)
	owner := rlock.WithOwner(t.Context())
	if err := a.Lock(owner, "name"); err != nil {
		t.Fatal(err)
	}
	expectTryLock(t, a, owner, false)
	expectTryLock(t, a, t.Context(), false)
	expectTryLock(t, b, t.Context(), false)
	unlock(t, a)
	expectTryLock(t, b, t.Context(), true)
	expectTryLock(t, a, owner, false)
	unlock(t, b)
	if len(a.holds)+len(b.holds) != 0 {
		t.Errorf("left in memory: %v, %v", a.holds, b.holds)
	}
}

func TestUnlockWithoutALockIsAnError(t *testing.T) {
	t.Parallel()
	a, b := storages(t)
	if err := a.Lock(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	if err := b.Unlock(t.Context(), "name"); !errors.Is(err, rlock.ErrNotHeld) {
		t.Errorf("another process: %v", err)
	}
	expectTryLock(t, b, t.Context(), false)
	unlock(t, a)
	if err := a.Unlock(t.Context(), "name"); !errors.Is(err, rlock.ErrNotHeld) {
		t.Errorf("a second time: %v", err)
	}
}

func TestLockEndsWithItsContext(t *testing.T) {
	t.Parallel()
	a, b := storages(t)
	if err := a.Lock(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*storage{a, b} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := s.Lock(ctx, "name"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		cancel()
	}
	unlock(t, a)
	if err := b.Lock(t.Context(), "name"); err != nil { // behind its request that was abandoned, if that is still under way
		t.Fatal(err)
	}
	unlock(t, b)
}

func TestUnlockOfALostLockLeavesTheNextOneAlone(t *testing.T) {
	t.Parallel()
	a, b := storages(t)
	expectTryLock(t, a, t.Context(), true)
	lost := a.holds["name"][0]
	if _, err := b.lock("name").ForceUnlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for lost.Err() == nil {
		runtime.Gosched()
	}
	if err := a.Lock(t.Context(), "name"); err != nil { // another goroutine
		t.Fatal(err)
	}
	unlock(t, a)
	expectTryLock(t, b, t.Context(), false)
	unlock(t, a)
	expectTryLock(t, b, t.Context(), true)
	unlock(t, b)
}

func TestWhicheverGoroutineIsFirstToUnlockEndsTheLostLock(t *testing.T) {
	t.Parallel()
	a, b := storages(t)
	expectTryLock(t, a, t.Context(), true)
	lost := a.take("name")
	if _, err := b.lock("name").ForceUnlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for lost.Err() == nil {
		runtime.Gosched()
	}
	expectTryLock(t, a, t.Context(), true)
	a.keep("name", lost, nil) // a goroutine that was slow to come to it
	unlock(t, a)
	expectTryLock(t, b, t.Context(), false)
	unlock(t, a)
	expectTryLock(t, b, t.Context(), true)
	unlock(t, b)
}
