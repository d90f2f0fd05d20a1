package redisson

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestTheJVMForcesGo(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	rdb := server.Client(t)
	jvm := dial(t, lease, server.Addr)
	a, b := jvm.thread("a"), jvm.thread("b")
	ctx, hold := lock(t, rlock.New(newSession(t, rdb, rlock.WithWatchdogTimeout(short)), "x"), bg)
	locked := a.start("lock", "x")
	subscribed(t, "x", rdb)
	if b.do("forceUnlock", "x") != "true" {
		t.Error("forceUnlock in the JVM says that nobody held the lock")
	}
	must(t, receive(t, "lock in the JVM", locked).err)
	receive(t, "Go hears of it", ctx.Done())
	if !errors.Is(context.Cause(ctx), rlock.ErrLost) {
		t.Errorf("Go hears of it as %v", context.Cause(ctx))
	}
	if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if n := a.number("holdCount", "x"); n != 1 {
		t.Errorf("after the Unlock of who had lost it, the JVM's hold count is %d", n)
	}
	a.do("unlock", "x")
}

func TestGoForcesTheJVM(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	rdb := server.Client(t)
	m := rlock.New(newSession(t, rdb), "x")
	jvm := dial(t, lease, server.Addr)
	a, b := jvm.thread("a"), jvm.thread("b")
	a.do("lock", "x")
	waiting := b.start("lock", "x")
	subscribed(t, "x", rdb)
	if forced, err := m.ForceUnlock(bg); err != nil || !forced {
		t.Errorf("ForceUnlock: %v, %v", forced, err)
	}
	must(t, receive(t, "lock in the JVM", waiting).err)
	if n := a.number("holdCount", "x"); n != 0 {
		t.Errorf("the JVM's hold count is %d after ForceUnlock", n)
	}
	if _, err := a.try("unlock", "x"); err == nil || !strings.Contains(err.Error(), "IllegalMonitorStateException") {
		t.Errorf("unlock in the JVM: %v", err)
	}
	b.do("unlock", "x")
	_, hold := lock(t, m, bg)
	unlock(t, hold)
}
