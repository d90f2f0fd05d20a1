// Command soak runs processes that use all primitives of the library while processes, network and servers
// fail. It checks the history of the calls against the guarantees. Run it from the repository's folder:
//
//	go run ./proof/soak -for 10m
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/standin"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/proof/history"
)

const about = `Usage: go run ./proof/soak [flags]

Starts five servers that write every change to disk (redis-server or valkey-server
must be on the PATH), and a proxy before each. Processes share locks of all kinds,
semaphores, latches and elections. All the time something fails: processes are killed and
frozen, connections cut, requests and replies lost and delayed, servers frozen and killed.
At the end nothing fails any more. Each process has to get each of them once more, and
leave nothing behind. Then it is judged what all of them saw: the exit code is 0 if the
guarantees allow it, and 1 if not.

With --redis there are no RedLocks, and the server is left alone. Every hold is
remembered until the end, in some hundred bytes.

`

const (
	exitOK          = 0
	exitWrong       = 1 // the verdict found a violation
	exitTrouble     = 2 // trouble with arguments, or with the servers
	exitInterrupted = 130
)

// childEnv is the environment variable that makes this program run as one of the processes.
const childEnv = "LOCKLINE_SOAK_PROCESS"

// servers is the number of servers that soak starts.
const servers = 5

type options struct {
	redis     string // URL of a server; "": soak starts servers
	processes int
	duration  time.Duration
	lease     time.Duration
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the program and returns its exit code.
func run(args []string, out, errOut io.Writer) int {
	if os.Getenv(childEnv) != "" {
		// A terminal sends ctrl-C and hang-up to all processes, but only the parent must react.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		if err := history.Work(os.Stdin, out); err != nil {
			fmt.Fprintln(errOut, "soak:", err)
			return exitTrouble
		}
		return exitOK
	}
	o, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	right := false
	if err == nil {
		ctx, stop := untilSignal()
		defer stop()
		err = standin.Run("soak", func(h *standin.Host) (err error) {
			right, err = soak(ctx, h, o, out)
			return err
		})
	}
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(errOut, "soak: interrupted")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(errOut, "soak:", err)
		return exitTrouble
	case !right:
		return exitWrong
	}
	return exitOK
}

func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints errors
	flags.StringVar(&o.redis, "redis", "",
		"`URL` of a Redis to use, without TLS, such as redis://127.0.0.1:6379/0 (default: five of its own)")
	flags.IntVar(&o.processes, "processes", 4, "how many processes at one time, 1 to 64")
	flags.DurationVar(&o.lease, "lease", 2*time.Second, "of the locks, at least 100ms")
	flags.DurationVar(&o.duration, "for", time.Minute, "how long things fail")
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, about)
		flags.SetOutput(out)
		flags.PrintDefaults()
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("it takes no arguments, got %q; see --help", flags.Arg(0))
	case o.processes < 1 || o.processes > 64:
		err = fmt.Errorf("--processes must be 1 to 64, not %d", o.processes)
	case o.lease < 100*time.Millisecond:
		err = fmt.Errorf("--lease must be at least 100ms, not %v", o.lease)
	case o.redis != "" && !strings.HasPrefix(o.redis, "redis://"):
		err = errors.New("--redis must begin with redis://: the proxy before the server does not speak TLS")
	}
	return o, err
}

// untilSignal returns a context that ends with SIGINT, SIGTERM or SIGHUP, unless the parent process has set
// the signal to be ignored.
func untilSignal() (context.Context, context.CancelFunc) {
	asks := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	if len(asks) == 0 { // NotifyContext without signals would mean all signals
		return context.WithCancel(context.Background())
	}
	return signal.NotifyContext(context.Background(), asks...)
}

// soak runs the processes, prints the verdict, and reports whether the verdict has no violation. If err is
// not nil, the verdict is about the time until the error, or there is no verdict.
func soak(ctx context.Context, h *standin.Host, o options, out io.Writer) (right bool, err error) {
	program, err := os.Executable()
	if err != nil {
		return false, err
	}
	stage := &history.Stage{
		Assignment: history.Assignment{
			Seed: rand.Uint64(), Prefix: fmt.Sprintf("lockline-soak-%d", os.Getpid()), Names: 2,
			Lease: o.lease, Goroutines: 4,
		},
		T: h, Processes: o.processes, Faults: history.Faults, Pace: o.lease / 4,
		Command: func() *exec.Cmd {
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), childEnv+"=1")
			return cmd
		},
	}
	if o.redis != "" {
		theirs, err := open(ctx, o.redis)
		if err != nil {
			return false, err
		}
		defer func() {
			sweep(theirs, stage.Prefix)
			_ = theirs.Close()
		}()
		stage.URLs = []string{o.redis}
		stage.Faults = history.Elsewhere
	} else {
		for range servers {
			s := testredis.Start(h, "--appendonly", "yes", "--appendfsync", "always")
			stage.Servers = append(stage.Servers, s)
			stage.URLs = append(stage.URLs, "redis://"+s.Addr)
		}
	}
	stage.Kinds = history.Kinds(len(stage.URLs))
	fmt.Fprintf(out, "%d processes with %d goroutines each, %d servers, %d of each kind (%s), lease %v, "+
		"for %v\n\n",
		o.processes, stage.Goroutines, len(stage.URLs), stage.Names, strings.Join(stage.Kinds, ", "),
		o.lease, o.duration)
	row := time.Duration(0)
	r, err := stage.Run(ctx, func(now *history.Record) bool {
		past := time.Since(now.Begun)
		if past >= row {
			row += max(o.duration/30, time.Second)
			fmt.Fprintf(out, "%7.0f s%9d acquisitions%9d failed%6d faults  last: %s\n",
				past.Seconds(), now.Got, now.Failed, now.Count(), now.Last)
		}
		return past >= o.duration
	})
	if r == nil {
		return false, err
	}
	v := judge(r, stage.Kinds)
	v.show(out)
	if !v.right() { // a violation counts more than an interruption
		return false, nil
	}
	return true, err
}

// open connects to a user's server.
func open(ctx context.Context, url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil { // the error may quote a password
		return nil, errors.New("--redis is not the URL of one server, such as redis://127.0.0.1:6379/0")
	}
	rdb := redis.NewClient(o)
	if err = rdb.Ping(ctx).Err(); err == nil &&
		strings.Contains(rdb.Info(ctx, "cluster").Val(), "cluster_enabled:1") {
		err = errors.New("--redis must name one server, no Cluster: what it sends goes through a proxy")
	}
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	return rdb, nil
}

// sweep deletes leftover keys in a user's Redis until it finds none twice in a row, because requests of
// killed processes may be in flight. It gives up after two seconds, because the keys expire by themselves.
func sweep(rdb *redis.Client, prefix string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for clean := 0; clean < 2 && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		clean++
		keys := rdb.Scan(ctx, 0, prefix+":*", 1000).Iterator()
		for keys.Next(ctx) {
			clean = 0
			rdb.Del(ctx, keys.Val())
		}
	}
}
