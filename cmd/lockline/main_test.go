package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// theirRedis starts a miniredis, which stands for the server of a user.
func theirRedis(t *testing.T) *miniredis.Miniredis {
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	return m
}

// TestMain makes the test binary run as the program, or as helper, if the first argument says so. Otherwise
// it runs the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if os.Args[len(os.Args)-1] == "--generate-shell-completion" {
			os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr))
		}
		switch os.Args[1] {
		case "exec", "demo", "demo-process", "exec-warden", "inspect", "ls", "top":
			os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr))
		case "helper":
			os.Exit(helper(os.Args[2:]))
		}
	}
	// By default, a program with the race detector sleeps for a second before it exits.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testredis.Run(m)
}

// operate runs a command of the program on the server at addr. It returns stdout, stderr and the exit code.
func operate(t *testing.T, addr string, args ...string) (out, errOut string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	line := append([]string{"lockline", args[0], "--redis", "redis://" + addr}, args[1:]...)
	code = run(t.Context(), line, &o, &e)
	return o.String(), e.String(), code
}

// said runs a command of the program, and returns its stdout. It fails the test if the command fails.
func said(t *testing.T, addr string, args ...string) string {
	t.Helper()
	out, errOut, code := operate(t, addr, args...)
	if code != exitOK {
		t.Fatalf("%v: exit code %d: %s%s", args, code, out, errOut)
	}
	return out
}

// operateJSON runs a command of the program with --json, and returns its decoded output. It fails the test if
// the command fails.
func operateJSON[T any](t *testing.T, addr string, args ...string) (v T) {
	t.Helper()
	return decoded[T](t, said(t, addr, append([]string{args[0], "--json"}, args[1:]...)...))
}

func decoded[T any](t *testing.T, out string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return v
}

// take acquires a lock, and releases it when the test ends.
func take(t *testing.T, m rlock.Locker) *rlock.Hold {
	t.Helper()
	_, hold := testlock.Lock(t, m, t.Context())
	t.Cleanup(func() { _ = hold.Unlock(context.Background()) }) // also keeps the Hold from being collected
	return hold
}

// wait starts a Lock, which waits until the test ends. wait returns when the Lock is in the queue.
func wait(t *testing.T, m *rlock.Mutex) {
	t.Helper()
	before, err := m.Inspect(t.Context())
	testlock.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, hold, _ := m.Lock(ctx)
		_ = hold.Unlock(context.Background())
	}()
	t.Cleanup(func() { cancel(); <-done })
	testlock.Eventually(t, "in the queue", func() bool {
		now, err := m.Inspect(t.Context())
		return err == nil && len(now.Queue) > len(before.Queue)
	})
}
