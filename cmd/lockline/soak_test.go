//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/history"
	"github.com/lockline/lockline/internal/standin"
	"github.com/lockline/lockline/internal/testredis"
)

func TestSoakFindsNothingWrong(t *testing.T) {
	roomFor(t)
	theirs := theirRedis(t)
	t.Cleanup(func() {
		if keys := theirs.Keys(); len(keys) > 0 {
			t.Errorf("left in Redis: %q", keys)
		}
	})
	for name, url := range map[string]string{"servers of its own": "", "theirs": "redis://" + theirs.Addr()} {
		t.Run(name, func(t *testing.T) {
			if _, ok := testredis.Binary(); url == "" && !ok {
				testredis.Start(t) // skips, or fails where a server is required
			}
			var out bytes.Buffer
			o := soakOptions{redis: url, processes: 3, duration: 2 * time.Second, lease: 500 * time.Millisecond}
			err := standin.Run("lockline-test", func(h *standin.Host) error { return runSoak(t.Context(), h, o, &out) })
			if err != nil || strings.Count(out.String(), "✓") != 8 || strings.Contains(out.String(), history.Red+" ") != (url == "") {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}

// A terminal's signals reach its whole process group. They come with the second row, when something has failed.
func TestSoakThatIsInterruptedStillJudges(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere a process that has just started still hears them")
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		heard := make(chan os.Signal, 1) // in the background they may be ignored, and then children ignore them, too
		signal.Notify(heard, sig)
		defer signal.Stop(heard)
		m := theirRedis(t)
		cmd := exec.Command(os.Args[0], "soak", "--redis", "redis://"+m.Addr(), "--lease", "500ms", "--for", "10s")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out := &watchedOutput{head: " acquisitions", seen: " faults  last:", found: func() { _ = syscall.Kill(-cmd.Process.Pid, sig) }}
		cmd.Stdout = struct{ io.Writer }{out} // not its ReadFrom
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != exitInterrupted || !strings.Contains(out.String(), "0 ended by themselves") {
			t.Errorf("%v: %v\n%s", sig, err, &out.Buffer)
		}
	}
}

func TestSoakNoticesWhatIsWrong(t *testing.T) {
	hold := func(owner string, token, call, end int64) []history.Op {
		return []history.Op{
			{Lock: "rlock 0", Owner: owner, Kind: history.Acquire, Token: token, Call: call, Return: call},
			{Lock: "rlock 0", Owner: owner, Kind: history.Acquire, Token: token, Call: call, Return: call},
			{Lock: "rlock 0", Owner: owner, Kind: history.Release, Token: token, Call: end, Return: end},
			{Lock: "rlock 0", Owner: owner, Kind: history.Release, Token: token, Call: end, Return: end},
		}
	}
	for name, c := range map[string]struct {
		spoil func(r *history.Record)
		wrong string
	}{
		"nothing":        {func(*history.Record) {}, ""},
		"two holders":    {func(r *history.Record) { r.Ops = append(r.Ops, hold("c", 3, 25, 40)...) }, "exclusion"},
		"a token twice":  {func(r *history.Record) { r.Ops = append(r.Ops, hold("c", 2, 40, 50)...) }, "fencing"},
		"a nested token": {func(r *history.Record) { r.Ops[1].Token = 9 }, "re-entry"},
		"no nested holds": {func(r *history.Record) {
			r.Ops = append(r.Ops[:1], r.Ops[3:5]...)
			r.Ops = append(r.Ops, hold("b", 2, 20, 30)[3])
		}, "re-entry"},
		"no faults":      {func(r *history.Record) { r.Faults = nil }, "faults"},
		"a stuck lock":   {func(r *history.Record) { r.Wrong = append(r.Wrong, history.Event{Op: history.Op{Kind: history.Stuck}}) }, "progress"},
		"a leak":         {func(r *history.Record) { r.Wrong = append(r.Wrong, history.Event{Op: history.Op{Kind: history.Left}}) }, "leaks"},
		"a crash":        {func(r *history.Record) { r.Wrong = append(r.Wrong, history.Event{Op: history.Op{Kind: history.Died}}) }, "processes"},
		"nothing at all": {func(r *history.Record) { *r = history.Record{} }, "exclusion fencing re-entry faults"},
	} {
		r := &history.Record{Ops: append(hold("a", 1, 0, 10), hold("b", 2, 20, 30)...), Faults: map[history.Fault]int{history.Kill: 1}}
		c.spoil(r)
		var wrong []string
		for _, c := range soakVerdict(r) {
			if !c.ok {
				wrong = append(wrong, c.name)
			}
		}
		if got := strings.Join(wrong, " "); got != c.wrong {
			t.Errorf("%s: found %q, want %q", name, got, c.wrong)
		}
	}
}
