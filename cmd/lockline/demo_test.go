package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// theirRedis is a server that belongs to a user.
func theirRedis(t *testing.T) *miniredis.Miniredis {
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	return m
}

// roomFor makes the demo's temporary files visible, and fails if any are left.
func roomFor(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in the temporary directory: %v, %v", left, err)
		}
	})
}

func TestDemoShowsThatAllIsRight(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"theirs": func(t *testing.T) string {
			m := theirRedis(t)
			t.Cleanup(func() {
				if keys := m.Keys(); len(keys) > 0 {
					t.Errorf("left in Redis: %q", keys)
				}
			})
			return "redis://" + m.Addr()
		},
	} {
		t.Run(name, func(t *testing.T) {
			roomFor(t)
			var out bytes.Buffer
			err := runDemo(t.Context(), demoOptions{redis: url(t), processes: 3, duration: time.Second}, &out)
			if err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			if strings.Count(out.String(), "✓") != 6 || strings.Contains(out.String(), "\x1b") {
				t.Errorf("output:\n%s", &out)
			}
		})
	}
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	roomFor(t)
	m := theirRedis(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &watchedOutput{seen: "HOLD", found: cancel}
	err := runDemo(ctx, demoOptions{redis: "redis://" + m.Addr(), processes: 2, duration: time.Minute}, out)
	if exit, ok := errors.AsType[*exitError](err); !ok || exit.code != exitInterrupted {
		t.Errorf("got %v\n%s", err, &out.Buffer)
	}
	if keys := m.Keys(); len(keys) > 0 {
		t.Errorf("left in Redis: %q", keys)
	}
}

// watchedOutput calls found when seen is first written behind the head.
type watchedOutput struct {
	bytes.Buffer
	seen  string
	found func()
}

func (w *watchedOutput) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.seen) && strings.Contains(w.String(), "fencing token") {
		w.found()
	}
	return w.Buffer.Write(p)
}

func TestDemoNoticesAProcessThatDies(t *testing.T) {
	roomFor(t)
	m := theirRedis(t)
	file := t.TempDir() + "/counter"
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var d *director
	out := &watchedOutput{seen: "HOLD", found: func() { _ = d.children[2].cmd.Process.Kill() }}
	o := demoOptions{processes: 3, duration: time.Minute}
	d = newDirector(o, newScreen(out, o.processes, o.duration))
	d.screen.intro("theirs", d.victim)
	if err := d.start(t.Context(), assignment{Redis: "redis://" + m.Addr(), Prefix: "p", Lock: "l", File: file, Lease: demoLease}); err != nil {
		t.Fatal(err)
	}
	if err := d.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.counter, d.fileErr = readCounter(file)
	c := judge(d.history)[5]
	if c.ok || !strings.Contains(c.says, "process 3 ended unexpectedly: signal: killed") {
		t.Errorf("processes: %+v", c)
	}
}
