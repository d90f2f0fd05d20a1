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

	"github.com/lockline/lockline/internal/testing/testlock"
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
	embedded := func(*testing.T) string { return "" }
	theirs := func(t *testing.T) string {
		m := theirRedis(t)
		t.Cleanup(func() {
			if keys := m.Keys(); len(keys) > 0 {
				t.Errorf("left in Redis: %q", keys)
			}
		})
		return "redis://" + m.Addr()
	}
	for name, test := range map[string]struct {
		url     func(t *testing.T) string
		fair    bool
		redlock bool
		checks  int
	}{
		"embedded":       {embedded, false, false, 6},
		"theirs":         {theirs, false, false, 6},
		"fair, embedded": {embedded, true, false, 8},
		"fair, theirs":   {theirs, true, false, 8},
		"redlock":        {embedded, false, true, 7},
	} {
		t.Run(name, func(t *testing.T) {
			roomFor(t)
			var out bytes.Buffer
			o := demoOptions{redis: target{URL: test.url(t)}, fair: test.fair, redlock: test.redlock, processes: 3, duration: time.Second}
			if err := runDemo(t.Context(), o, &out); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			if strings.Count(out.String(), "✓") != test.checks || strings.Contains(out.String(), "\x1b") {
				t.Errorf("output:\n%s", &out)
			}
			if shown := strings.Contains(out.String(), "first in the queue (P"); shown != test.fair {
				t.Errorf("a queue was shown: %v\n%s", shown, &out)
			}
		})
	}
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	roomFor(t)
	for _, fair := range []bool{false, true} {
		m := theirRedis(t)
		ctx, cancel := context.WithCancel(t.Context())
		out := &watchedOutput{head: "fencing token", seen: "HOLD", found: cancel}
		err := runDemo(ctx, demoOptions{redis: target{URL: "redis://" + m.Addr()}, fair: fair, processes: 3, duration: time.Minute}, out)
		if exit, ok := errors.AsType[*exitError](err); !ok || exit.code != exitInterrupted {
			t.Errorf("fair %v: got %v\n%s", fair, err, &out.Buffer)
		}
		if keys := m.Keys(); len(keys) > 0 {
			t.Errorf("fair %v: left in Redis: %q", fair, keys)
		}
	}
}

func TestColorCanBeForcedWithoutATerminal(t *testing.T) {
	for _, test := range []struct {
		force, no string
		want      bool
	}{
		{"", "", false},
		{"0", "", false},
		{"1", "", true},
		{"1", "1", false},
	} {
		t.Setenv("CLICOLOR_FORCE", test.force)
		t.Setenv("NO_COLOR", test.no)
		if got := colourful(new(bytes.Buffer)); got != test.want {
			t.Errorf("CLICOLOR_FORCE=%q, NO_COLOR=%q: color is %v", test.force, test.no, got)
		}
	}
}

// watchedOutput calls found when seen is written after head.
type watchedOutput struct {
	bytes.Buffer
	head, seen string
	found      func()
}

func (w *watchedOutput) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.seen) && strings.Contains(w.String(), w.head) {
		w.found()
	}
	return w.Buffer.Write(p)
}

func TestDemoNoticesAProcessThatDies(t *testing.T) {
	roomFor(t)
	m := theirRedis(t)
	file := t.TempDir() + "/counter"
	testlock.Must(t, os.WriteFile(file, []byte("0"), 0o600))
	var d *director
	out := &watchedOutput{head: "fencing token", seen: "HOLD", found: func() { d.children[2].Kill() }}
	o := demoOptions{processes: 3, duration: time.Minute}
	d = newDirector(o, newScreen(out, o))
	d.screen.intro("theirs", d.victim)
	testlock.Must(t, d.start(t.Context(), assignment{Redis: []target{{URL: "redis://" + m.Addr()}}, Prefix: "p", Lock: "l", File: file, Lease: demoLease}))
	testlock.Must(t, d.play(t.Context()))
	d.counter, d.fileErr = readCounter(file)
	c := judge(d.account)[5]
	if c.ok || !strings.Contains(c.says, "process 3 ended unexpectedly: signal: killed") {
		t.Errorf("processes: %+v", c)
	}
}
