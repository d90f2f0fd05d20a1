package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/testing/standin"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/proof/history"
)

type soakOptions struct {
	redis     string // URL; empty for servers of its own
	processes int
	duration  time.Duration
	lease     time.Duration
}

func soakCommand() *cli.Command {
	return &cli.Command{
		Name:  "soak",
		Usage: "processes use everything there is while processes, network and servers fail; the outcome is judged",
		Description: "Starts five servers that write every change to disk (redis-server or valkey-server\n" +
			"must be on the PATH), a proxy before each, and processes that share rlocks,\n" +
			"fairlocks, MultiLocks, RedLocks, read-write locks, semaphores, latches and elections on\n" +
			"them. All the time something fails: processes are killed and frozen, connections cut,\n" +
			"requests and replies lost and delayed, servers frozen and killed. At the end nothing\n" +
			"fails any more, each process has to get each of them once more and then leave nothing\n" +
			"behind. What all of them saw is judged: exit code 0 if they may show that, 1 if not.\n\n" +
			"With --redis there are no RedLocks, and the server is left alone. Every hold is\n" +
			"remembered until the end, in some hundred bytes.",
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "redis", Usage: "`URL` of a Redis to use, without TLS, such as redis://127.0.0.1:6379/0 (default: five of its own)"},
			&cli.IntFlag{Name: "processes", Value: 4, Usage: "how many processes at one time, 1 to 64"},
			&cli.DurationFlag{Name: "lease", Value: 2 * time.Second, Usage: "of the locks, at least 100ms"},
			&cli.DurationFlag{Name: "for", Value: time.Minute, Usage: "how long things fail"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			o := soakOptions{redis: cmd.String("redis"), processes: cmd.Int("processes"), duration: cmd.Duration("for"), lease: cmd.Duration("lease")}
			switch {
			case cmd.Args().Present():
				return fmt.Errorf("soak takes no arguments, got %q; see lockline soak --help", cmd.Args().First())
			case o.processes < 1 || o.processes > 64:
				return fmt.Errorf("--processes must be 1 to 64, not %d", o.processes)
			case o.lease < 100*time.Millisecond:
				return fmt.Errorf("--lease must be at least 100ms, not %v", o.lease)
			case o.redis != "" && !strings.HasPrefix(o.redis, "redis://"):
				return errors.New("--redis must begin with redis://: the proxy before the server does not speak TLS")
			}
			ctx, stop := untilSignal(ctx)
			defer stop()
			return standin.Run("lockline", func(h *standin.Host) error { return runSoak(ctx, h, o, cmd.Root().Writer) })
		},
	}
}

func soakProcessCommand() *cli.Command {
	return &cli.Command{
		Name:   "soak-process",
		Usage:  "one of the processes that lockline soak starts",
		Hidden: true,
		Action: func(_ context.Context, cmd *cli.Command) error {
			leaveSignals()
			return history.Work(os.Stdin, cmd.Root().Writer)
		},
	}
}

// soakServers is how many servers it starts.
const soakServers = 5

func runSoak(ctx context.Context, h *standin.Host, o soakOptions, out io.Writer) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	stage := &history.Stage{
		Assignment: history.Assignment{
			Seed: rand.Uint64(), Prefix: fmt.Sprintf("lockline-soak-%d", os.Getpid()), Names: 2, Lease: o.lease, Goroutines: 4,
		},
		T: h, Command: func() *exec.Cmd { return exec.Command(program, "soak-process") }, Processes: o.processes,
		Faults: history.Faults, Pace: o.lease / 4,
	}
	if o.redis != "" {
		rdb, err := target{URL: o.redis}.open(ctx)
		if err != nil {
			return err
		}
		if client, ok := rdb.(*redis.Client); !ok || client.Options().Addr == "FailoverClient" {
			rdb.Close()
			return errors.New("soak: --redis must name one server, no Cluster and no Sentinels: what it sends goes through a proxy")
		}
		defer func() {
			sweep(rdb, stage.Prefix)
			rdb.Close()
		}()
		stage.URLs = []string{o.redis}
		stage.Faults = history.Elsewhere
	} else {
		for range soakServers {
			s := testredis.Start(h, "--appendonly", "yes", "--appendfsync", "always")
			stage.Servers = append(stage.Servers, s)
			stage.URLs = append(stage.URLs, "redis://"+s.Addr)
		}
	}
	stage.Kinds = history.Kinds(len(stage.URLs))
	s := &screen{out: out, colour: colourful(out)}
	fmt.Fprintf(out, "%s\n%d processes with %d goroutines each, %d servers, %d of each kind (%s), lease %v, for %v\n\n",
		s.paint(bold, "lockline soak"), o.processes, stage.Goroutines, len(stage.URLs), stage.Names, strings.Join(stage.Kinds, ", "), o.lease, o.duration)
	row := time.Duration(0)
	r, err := stage.Run(ctx, func(now *history.Record) bool {
		past := time.Since(now.Begun)
		if past >= row {
			row += max(o.duration/30, time.Second)
			fmt.Fprintf(out, "%s%9d acquisitions%9d failed%6d faults  last: %s\n", s.paint(faint, fmt.Sprintf("%7.0f s", past.Seconds())), now.Got, now.Failed, now.Count(), now.Last)
		}
		return past >= o.duration
	})
	if r == nil {
		return err
	}
	v := soakVerdict(r, stage.Kinds)
	s.verdict(v)
	switch {
	case !v.right():
		return &exitError{code: exitWrong}
	case err != nil:
		return errInterrupted
	}
	return nil
}

// soakVerdict says what is right and what is not. A record that shows nothing of one of the kinds is not.
func soakVerdict(r *history.Record, kinds []string) verdict {
	holds := history.Holds(r.Ops)
	judged := history.JudgeAll(r.Ops)
	lost, nested, runs, waits := 0, 0, 0, 0
	uses := map[string]int{} // by kind
	for _, h := range holds {
		if h.Lost {
			lost++
		}
		nested += h.Nested
		uses[history.KindOf(h.Lock)]++
	}
	for _, op := range r.Ops {
		switch op.Kind {
		case history.Set:
			runs++
		case history.Wait:
			waits++
			uses[history.KindOf(op.Lock)]++
		}
	}
	var used, faults []string
	unused := 0
	for _, kind := range kinds {
		used = append(used, fmt.Sprintf("%s %d", kind, uses[kind]))
		if uses[kind] == 0 {
			unused++
		}
	}
	for _, f := range history.Faults {
		if n := r.Faults[f]; n > 0 {
			faults = append(faults, fmt.Sprintf("%s %d", f, n))
		}
	}
	example := func(n int) string { // of the first of them
		if n == 0 || judged.Example == "" {
			return ""
		}
		return ": " + judged.Example
	}
	check := func(name string, wrong int, shown bool, says string) check {
		return check{name, wrong == 0 && shown, says}
	}
	v := verdict{
		check("use", unused, len(kinds) > 0, strings.Join(used, ", ")),
		check("exclusion", judged.Overlaps, len(holds) > 1, fmt.Sprintf("%d holds, %d runs of latches, %d overlaps%s", len(holds), runs, judged.Overlaps, example(judged.Overlaps))),
		check("fencing", judged.Unfenced, len(holds) > 1, fmt.Sprintf("%d tokens that were not above all granted before", judged.Unfenced)),
		check("re-entry", judged.Strange, nested > 0, fmt.Sprintf("%d nested holds, %d not as their outer hold", nested, judged.Strange)),
		check("latches", judged.Early, true, fmt.Sprintf("%d waits, %d of them over before the count was 0%s", waits, judged.Early, example(judged.Early))),
		check("faults", 0, r.Count() > 0, fmt.Sprintf("%d: %s", r.Count(), strings.Join(faults, ", "))),
		check("losses", 0, true, fmt.Sprintf("%d holds ended with their process or lease; %d acquisitions ended without the lock", lost, r.Failed)),
	}
	for _, c := range []struct {
		name, what string
		kind       history.Kind
	}{
		{"progress", "that could not be had once nothing failed", history.Stuck},
		{"leaks", "processes that left goroutines behind, servers with keys or subscriptions left", history.Left},
		{"processes", "ended by themselves", history.Died},
	} {
		n, first := 0, ""
		for _, e := range r.Wrong {
			if e.Kind == c.kind {
				n++
				first = cmp.Or(first, ": "+e.Error)
			}
		}
		v = append(v, check(c.name, n, true, fmt.Sprintf("%d %s%s", n, c.what, first)))
	}
	return v
}
