//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestDemoShowsThatAllIsRight(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"embedded", "theirs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"demo", "--for", "1s"}
			m := theirRedis(t)
			if name == "theirs" {
				args = append(args, "--redis", "redis://"+m.Addr())
			}
			cmd := exec.Command(os.Args[0], args...)
			cmd.Env = append(os.Environ(), "LOCKLINE_REDIS=nonsense", "LOCKLINE_REDIS_FILE=/nonexistent",
				"LOCKLINE_CACERT=/nonexistent", "LOCKLINE_CERT=/nonexistent", "LOCKLINE_KEY=/nonexistent")
			p := start(t, cmd)
			p.wantCode(exitOK)
			out := p.out.String()
			if strings.Count(out, "✓") != 7 || strings.Contains(out, "\x1b") ||
				!strings.Contains(out, ": refused") {
				t.Errorf("output:\n%s", out)
			}
			for _, key := range m.Keys() {
				if ttl := m.TTL(key); ttl <= 0 || ttl > time.Minute ||
					!strings.HasPrefix(key, "lockline-demo-") {
					t.Errorf("left in Redis: %q, for %v", key, ttl)
				}
			}
		})
	}
}

func TestInterruptedDemoEnds(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(os.Args[0], "demo", "--for", "1m"))
	testlock.Eventually(t, "a process holds it",
		func() bool { return strings.Contains(p.out.String(), " HOLD ") })
	p.signal(syscall.SIGINT)
	p.wantCode(exitInterrupted)
}

// A watchedOutput calls found for each write that contains the text seen.
type watchedOutput struct {
	bytes.Buffer
	seen  string
	found func()
}

func (w *watchedOutput) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.seen) {
		w.found()
	}
	return w.Buffer.Write(p)
}

func TestDemoNoticesAProcessThatDies(t *testing.T) {
	t.Parallel()
	m := theirRedis(t)
	var d *director
	out := &watchedOutput{seen: "HOLD", found: func() { d.children[0].Kill() }}
	d = newDirector(time.Minute, newScreen(out, time.Minute))
	a := assignment{Redis: target{URL: "redis://" + m.Addr()}, Prefix: "p", Lease: demoLease}
	testlock.Must(t, d.start(t.Context(), a))
	d.play()
	c := judge(d.account)[6]
	if c.ok || !strings.Contains(c.says, "process 1 ended unexpectedly: signal: killed") {
		t.Errorf("processes: %+v", c)
	}
}
