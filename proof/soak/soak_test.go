//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/standin"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/proof/history"
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
			if err != nil || strings.Count(out.String(), "✓") != 10 || strings.Contains(out.String(), history.Red+" ") != (url == "") {
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

// held are the ops of a hold of one of the kinds, made of acquire: of a nested hold, too, if its owner may re-enter.
func held(acquire history.Op, nested bool, end int64) (ops []history.Op) {
	release := acquire
	release.Kind, release.Permits, release.Call, release.Return = history.Release, 0, end, end
	if nested {
		return []history.Op{acquire, acquire, release, release}
	}
	return []history.Op{acquire, release}
}

func TestSoakNoticesWhatIsWrong(t *testing.T) {
	hold := func(owner string, token, call, end int64) []history.Op {
		return held(history.Op{Lock: "rlock 0", Owner: owner, Kind: history.Acquire, Token: token, Call: call, Return: call}, true, end)
	}
	share := func(owner string, read bool, token, call, end int64) []history.Op {
		return held(history.Op{Lock: "rwlock 0", Owner: owner, Kind: history.Acquire, Read: read, Token: token, Call: call, Return: call}, false, end)
	}
	permits := func(owner string, n int, token, call, end int64) []history.Op {
		return held(history.Op{Lock: "semaphore 0", Owner: owner, Kind: history.Acquire, Permits: n, Token: token, Call: call, Return: call}, false, end)
	}
	lead := func(owner string, token, call, end int64) []history.Op {
		return held(history.Op{Lock: "election 0", Owner: owner, Kind: history.Acquire, Token: token, Call: call, Return: call}, false, end)
	}
	latch := func(kind history.Kind, n int, call, end int64) history.Op {
		return history.Op{Lock: "latch 0", Owner: "a", Kind: kind, Permits: n, Call: call, Return: end}
	}
	add := func(ops ...history.Op) func(*history.Record) {
		return func(r *history.Record) { r.Ops = append(r.Ops, ops...) }
	}
	kinds := []string{history.Reentrant, history.ReadWrite, history.Semaphore, history.Latch, history.Election}
	for name, c := range map[string]struct {
		spoil func(r *history.Record)
		wrong string
	}{
		"nothing":                         {func(*history.Record) {}, ""},
		"two holders":                     {add(hold("c", 3, 25, 40)...), "exclusion"},
		"a token twice":                   {add(hold("c", 2, 40, 50)...), "fencing"},
		"a nested token":                  {func(r *history.Record) { r.Ops[1].Token = 9 }, "re-entry"},
		"a reader beside a writer":        {add(share("c", true, 10, 25, 40)...), "exclusion"},
		"a writer beside a reader":        {add(share("c", false, 5, 5, 15)...), "exclusion"},
		"a writer's token that goes back": {add(share("c", false, 2, 40, 50)...), "exclusion fencing"},
		"a permit too many":               {add(permits("c", 1, 5, 5, 6)...), "exclusion"},
		"more permits than there are":     {add(permits("c", 4, 5, 40, 50)...), "exclusion"},
		"a permit that comes back twice":  {add(permits("a", 1, 5, 40, 50)[1]), "re-entry"},
		"two leaders":                     {add(lead("c", 3, 25, 40)...), "exclusion"},
		"a leader's token that goes back": {add(lead("c", 1, 40, 50)...), "exclusion fencing"},
		"a wait before the last count":    {add(latch(history.Wait, 0, 3, 5)), "latches"},
		"a wait of a run that is not counted": {add(latch(history.Set, 3, 20, 21), latch(history.Count, 0, 22, 23), latch(history.Count, 0, 24, 25), latch(history.Wait, 0, 22, 26)),
			"latches"},
		"a run in a run": {add(latch(history.Set, 3, 4, 5)), "exclusion"},
		"no nested holds": {func(r *history.Record) {
			r.Ops = append(append(r.Ops[:1:1], r.Ops[3:5]...), r.Ops[7:]...)
		}, "re-entry"},
		"no latch": {func(r *history.Record) {
			r.Ops = slices.DeleteFunc(r.Ops, func(op history.Op) bool { return op.Kind == history.Wait })
		}, "use"},
		"no election": {func(r *history.Record) {
			r.Ops = slices.DeleteFunc(r.Ops, func(op history.Op) bool { return history.KindOf(op.Lock) == history.Election })
		}, "use"},
		"no faults":      {func(r *history.Record) { r.Faults = nil }, "faults"},
		"a stuck lock":   {func(r *history.Record) { r.Wrong = append(r.Wrong, history.Event{Op: history.Op{Kind: history.Stuck}}) }, "progress"},
		"a leak":         {func(r *history.Record) { r.Wrong = append(r.Wrong, history.Event{Op: history.Op{Kind: history.Left}}) }, "leaks"},
		"a crash":        {func(r *history.Record) { r.Wrong = append(r.Wrong, history.Event{Op: history.Op{Kind: history.Died}}) }, "processes"},
		"nothing at all": {func(r *history.Record) { *r = history.Record{} }, "use exclusion fencing re-entry faults"},
	} {
		r := &history.Record{Faults: map[history.Fault]int{history.Kill: 1}}
		for _, ops := range [][]history.Op{
			hold("a", 1, 0, 10), hold("b", 2, 20, 30),
			share("a", true, 1, 0, 10), share("b", true, 2, 1, 11), share("a", false, 9, 20, 30),
			permits("a", 2, 1, 0, 10), permits("b", 1, 2, 1, 11), permits("a", 3, 3, 20, 30),
			lead("a", 1, 0, 10), lead("b", 2, 20, 30),
			{latch(history.Set, 3, 0, 1), latch(history.Count, 0, 2, 3), latch(history.Count, 0, 4, 5), latch(history.Count, 0, 6, 7), latch(history.Wait, 0, 2, 8)},
		} {
			r.Ops = append(r.Ops, ops...)
		}
		c.spoil(r)
		var wrong []string
		for _, c := range soakVerdict(r, kinds) {
			if !c.ok {
				wrong = append(wrong, c.name)
			}
		}
		if got := strings.Join(wrong, " "); got != c.wrong {
			t.Errorf("%s: found %q, want %q", name, got, c.wrong)
		}
	}
}
