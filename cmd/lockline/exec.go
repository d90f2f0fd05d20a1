package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

const execDescription = `Waits for the lock NAME, runs COMMAND while it holds the lock, and frees the lock
after the command has ended. By default, the lock is that of rlock.New(session,
NAME) in the library. With --fair, it is that of package fairlock: first come, first
served. With --shared or --exclusive, it is that of package rwlock, to read or to
write. With --semaphore N, it is one of N permits of package semaphore. Programs and
commands exclude each other if they use the same kind, name and prefix. Locks of
different kinds do not exclude each other.

The command's environment has the name of the lock in LOCKLINE_NAME, and the fencing
token in LOCKLINE_TOKEN. If the command runs lockline exec for the same lock, that
fails at once. LOCKLINE_OWNERS is for this check.

If the lock was not granted within a second, a line on stderr names the holder.
After the grant, stdin, stdout and stderr belong to the command. The command runs in
a process group of its own. If lockline is in the foreground of a terminal, this
group becomes the foreground, and ctrl-Z does not stop the command. If stdin or
stdout is a pipe, the group becomes the foreground only when the command uses the
terminal, so that a pager can use it until then. If lockline is in the background, a
command that uses the terminal is stopped, with a line on stderr, and holds the lock.
It continues when lockline comes into the foreground.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded to the group.
Only the command itself is waited for. If it leaves processes running in the
background, these run without the lock.

With --hold-at-least 30s, the lock stays taken until 30 s after its grant, even if
the command ends earlier. With --wait 0, too, machines whose clocks differ by
seconds run a cron job only once. If the command could not be started, the lock is
free at once, so another machine can run the job. If lockline is killed, the lock is
free when its lease ends. If Redis does not answer when the command has ended,
lockline ends 2 s later, and then the lock is also free when its lease ends.

The lease is renewed after each third. By default, it is longer than the 15 s of the
library, because --grace is a part of it. If renewals fail, the command and all its
descendants get SIGTERM when --grace of the lease is left. They get SIGKILL just
before the end of the lease, because then another process can get the lock. If an
operator has freed the lock, or Redis has lost its data, they get SIGTERM at once.
They get SIGKILL after --grace, or at the end of the lease if that comes first. If a
command ends after SIGTERM, its remaining descendants get SIGKILL.

On Linux, the descendants are all processes that the command has started, also in
other process groups and sessions, and orphans. On other systems, they are its
process group. A process of another user is never one of them, and neither is a
process that a daemon starts for the command (docker, systemd-run).

The command is the child of a second process of lockline. That process sends it
SIGKILL at once if lockline is killed, and before the lease ends if lockline is
stopped. If the second process is killed, lockline ends the command's process group,
but processes that have left the group continue. If both processes of lockline are
stopped, for example in a frozen container, the command may run longer than the
lease: check tokens.

Exit code: the exit code of the command, or 128+n if signal n ended it; 123 if the
lock was lost, or could not be kept, before the command had ended. If the command
did not run:

    124    the lock was not free within --wait (another code with --conflict-exit-code)
    125    lockline failed: arguments, Redis, too few replicas, or a lock it runs under itself
    126    the command could not be run
    127    the command was not found
    128+n  signal n ended the wait for the lock`

type execOptions struct {
	redis        target
	prefix, name string
	open         func(*rlock.Session, string) subject
	bounded      bool          // --wait was given
	atMost       time.Duration // longest wait, if bounded
	quiet        bool
	locked       int // exit code if the lock was not free in time
	lease, grace time.Duration
	atLeast      time.Duration // shortest time for which the lock stays taken
	replicas     int           // number of replicas that must have the lock before the command runs
	note         string        // text that is shown beside the holder
	command      []string
}

func execCommand() *cli.Command {
	nameFirst := 1
	flags := append(redisFlags(),
		&cli.BoolFlag{Name: "fair", Usage: "the fair lock of that name: first come, first served"},
		&cli.BoolFlag{Name: "shared",
			Usage: "the read-write lock of that name, to read: other readers may be inside"},
		&cli.BoolFlag{Name: "exclusive",
			Usage: "the read-write lock of that name, to write: nobody else is inside"},
		&cli.IntFlag{Name: "semaphore", DefaultText: "a lock",
			Usage: "one of `N` permits of the semaphore of that name"},
		&cli.DurationFlag{Name: "wait", DefaultText: "indefinitely",
			Usage: "longest wait for Redis and the lock; 0: do not wait for holders"},
		&cli.IntFlag{Name: "conflict-exit-code", Aliases: []string{"E"}, Value: exitLocked,
			Usage: "the exit code if the lock was not free within --wait, 0 to 255"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"},
			Usage: "do not write to stderr that the lock is not free, during the wait or at the end"},
		&cli.DurationFlag{Name: "lease", Value: 30 * time.Second,
			Usage: "how long the lock stays taken if this machine dies"},
		&cli.DurationFlag{Name: "hold-at-least",
			Usage: "shortest time for which the lock stays taken, counted from its grant"},
		&cli.StringFlag{Name: "note",
			Usage: "a `TEXT` about this run, which lockline ls and errors show beside the holder"},
		&cli.IntFlag{Name: "replicas",
			Usage: "run the command only after `N` replicas have the lock (Redis' WAIT), within the lease"},
		&cli.DurationFlag{Name: "grace", Value: 5 * time.Second,
			Usage: "time that the command has to end after SIGTERM; at most a third of the lease"},
	)
	return &cli.Command{
		Name:          "exec",
		Usage:         "run a command while holding a lock",
		ArgsUsage:     "NAME -- COMMAND [ARGS...]",
		Description:   execDescription,
		StopOnNthArg:  &nameFirst,
		ShellComplete: completeName,
		Flags:         flags,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			o, err := execArguments(cmd)
			if err != nil {
				return err
			}
			return o.redis.located(runExec(ctx, o, cmd.Root().ErrWriter))
		},
	}
}

func execArguments(cmd *cli.Command) (execOptions, error) {
	o := execOptions{
		redis: targetOf(cmd), prefix: cmd.String("prefix"), open: openReentrant,
		bounded: cmd.IsSet("wait"), atMost: cmd.Duration("wait"), atLeast: cmd.Duration("hold-at-least"),
		lease: cmd.Duration("lease"), grace: cmd.Duration("grace"), replicas: cmd.Int("replicas"),
		quiet: cmd.Bool("quiet"), locked: cmd.Int("conflict-exit-code"), note: cmd.String("note"),
	}
	kinds := 0
	for _, kind := range []struct {
		chosen bool
		open   func(*rlock.Session, string) subject
	}{
		{cmd.Bool("fair"), openFair}, {cmd.Bool("shared"), openReader}, {cmd.Bool("exclusive"), openWriter},
		{cmd.IsSet("semaphore"), openSemaphore(cmd.Int("semaphore"))},
	} {
		if kind.chosen {
			o.open = kind.open
			kinds++
		}
	}
	args, line := cmd.Args().Slice(), cmd.Root().Args().Slice()
	// If -- comes before the first word, NAME is missing, unless a second -- follows that word.
	unnamed := line[len(line)-len(args)-1] == "--"
	if len(args) > 0 {
		o.name, args = args[0], args[1:]
	}
	// If -- is missing, the word after NAME begins the command. Without this check, an option that was put
	// after NAME would be run as the command.
	if len(args) > 0 && args[0] == "--" {
		args, unnamed = args[1:], false
	} else if !unnamed && len(args) > 0 && strings.HasPrefix(args[0], "-") {
		return o, misused(cmd, "exec: put options before NAME, and -- before the command: %q", args[0])
	}
	o.command = args
	switch {
	case kinds > 1:
		return o, misused(cmd, "exec: give at most one of --fair, --shared, --exclusive and --semaphore")
	case cmd.IsSet("semaphore") && cmd.Int("semaphore") < 1:
		return o, fmt.Errorf("exec: --semaphore must be above 0: %d", cmd.Int("semaphore"))
	case o.name == "", unnamed:
		return o, misused(cmd, "exec: the name of a lock is missing")
	case len(o.command) == 0:
		return o, misused(cmd, "exec: the command is missing")
	case o.locked < 0 || o.locked > 255:
		return o, fmt.Errorf("exec: --conflict-exit-code must be 0 to 255: %d", o.locked)
	case o.replicas < 0:
		return o, fmt.Errorf("exec: --replicas must not be negative: %d", o.replicas)
	}
	if err := protocol.CheckText("--note", o.note); err != nil {
		return o, fmt.Errorf("exec: %s", say(err))
	}
	if err := checkTime(cmd, "lease", protocol.MinLease); err != nil {
		return o, err
	}
	for _, flag := range []string{"wait", "hold-at-least", "grace"} {
		if err := checkTimeOrZero(cmd, flag); err != nil {
			return o, err
		}
	}
	// If renewals succeed, at least two thirds of the lease are always left. grace must be less than that.
	o.grace = min(o.grace, o.lease/3)
	return o, nil
}

// runExec finds the command, waits for the lock, runs the command and frees the lock.
func runExec(ctx context.Context, o execOptions, errOut io.Writer) error {
	if err := execSupported(); err != nil {
		return err
	}
	path, err := exec.LookPath(o.command[0])
	if err != nil {
		return &exitError{startFailure(err), startError(o.command[0], err)}
	}
	signals := listen()
	defer signal.Stop(signals)

	waiting, granted := untilEnded(ctx, signals)
	defer granted()
	begun := time.Now()
	rdb, err := o.contact(waiting, errOut)
	if err != nil {
		return err
	}
	defer rdb.Close()
	var troubles lastTrouble
	session, err := newSession(rdb, o.prefix, "lockline exec "+printable(filepath.Base(path)),
		rlock.WithWatchdogTimeout(o.lease), rlock.WithObserver(&troubles))
	if err != nil {
		return err
	}
	leaveBy := sync.OnceValue(func() time.Time { return time.Now().Add(shutdownWait) })
	defer func() { closeSessionBy(session, leaveBy()) }()

	c := &contender{o, rdb, session, o.open(session, o.name), errOut, leaveBy, begun}
	if err := c.refuseOwn(waiting); err != nil {
		return err
	}
	held, hold, err := c.wait(waiting, granted)
	if err != nil {
		return err
	}
	// After a hand-over, the first lease is only two seconds. Without Extend, the guard would end the command
	// at once.
	extending, cancel := context.WithTimeout(waiting, o.lease)
	err = hold.Extend(extending, o.lease)
	if cancel(); err != nil {
		c.free(hold)
		return err
	}

	lead := killLead(o.lease)
	env := environment(o.name, session.ID(), hold.Token())
	run, err := startGroup(path, o.command, env, hold.Deadline().Add(-lead))
	if err != nil {
		c.free(hold)
		return err
	}
	g := &guard{
		name: o.name, lease: held, hold: hold, grace: o.grace, lead: lead, look: o.lease / 10,
		group: run, signals: signals, troubles: &troubles, errOut: errOut,
	}
	exit := g.watch()
	return g.release(exit, leaveBy())
}

// listen returns a channel with the signals that exec forwards to the command. It leaves out signals that the
// parent process has set to be ignored, as nohup does with SIGHUP.
//
// SIGPIPE is also caught, for the rest of the process. Otherwise a line on a stderr that nobody reads would
// end exec or the warden, and so the command.
func listen() chan os.Signal {
	signals := make(chan os.Signal, 16)
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	if !signal.Ignored(syscall.SIGPIPE) {
		// Not signal.Ignore, because the command would inherit that SIGPIPE is ignored.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	return signals
}

func startFailure(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitCannotRun
}

// shellCharacters are characters that have a meaning in a shell, and are rare in names of programs.
const shellCharacters = " \t\n|&;<>()$`*?[]{}'\"\\=~#"

// startError adds a hint at the likely mistake to the error of a command that did not start. word is the
// command without its arguments.
func startError(word string, err error) error {
	switch notFound := startFailure(err) == exitNotFound; {
	case notFound && strings.ContainsAny(word, shellCharacters):
		return fmt.Errorf("%w (exec runs no shell: if the words are for a shell, write -- sh -c '...')", err)
	case notFound && errors.As(err, new(*os.PathError)) && fileExists(word):
		return fmt.Errorf("%w (the file exists, but what it needs does not: the interpreter in its line "+
			"with #!, or the loader of the program)", err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w (it is no program for this machine, and a script needs a first line with #!: "+
			"name the interpreter, as in -- sh FILE)", err)
	}
	return err
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ownersVariable is an environment variable that exec sets for its command. It has the ids of the sessions
// under whose locks the command runs.
const ownersVariable = "LOCKLINE_OWNERS"

func owners() []string { return strings.Fields(os.Getenv(ownersVariable)) }

// wardenCommand returns the hidden command for the warden. The warden is the process that exec starts between
// itself and the user's command.
func wardenCommand() *cli.Command {
	return &cli.Command{
		Name: "exec-warden", Usage: "the process that lockline exec starts to end the command in time",
		Hidden: true, SkipFlagParsing: true,
		Action: func(_ context.Context, cmd *cli.Command) error {
			return runWarden(cmd.Args().Tail()) // the arguments after "--"
		},
	}
}

func environment(name, session string, token int64) []string {
	return append(os.Environ(), "LOCKLINE_NAME="+name, "LOCKLINE_TOKEN="+strconv.FormatInt(token, 10),
		ownersVariable+"="+strings.Join(append(owners(), session), " "))
}

// untilEnded returns a context for the work before the command runs. A signal that normally ends a process
// ends this context. The caller must call granted when the wait for the lock has ended. After that, no signal
// ends the context. Otherwise a signal would end the context of the hold, too, which descends from it.
func untilEnded(ctx context.Context, signals <-chan os.Signal) (waiting context.Context, granted func()) {
	waiting, interrupt := context.WithCancelCause(ctx)
	over := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			select {
			case s := <-signals:
				if endsWait(s) {
					interrupt(&exitError{exitSignalBase + int(s.(syscall.Signal)), nil})
					return
				}
			case <-over:
				return
			}
		}
	})
	return waiting, sync.OnceFunc(func() { close(over); listening.Wait() })
}

// A contender waits for the lock before the command runs.
type contender struct {
	execOptions
	rdb     redis.UniversalClient
	session *rlock.Session
	lock    subject
	errOut  io.Writer
	leaveBy func() time.Time // returns the time by which this process must end; the first call fixes the time
	begun   time.Time        // start of the time of --wait
}

// refuseOwn returns an error if this process runs under the lock for which it would wait. One look is enough,
// because an outer lockline exec has taken its lock before this process began, and holds it while this
// process runs. For a semaphore, refuseOwn returns nil, because another permit may be free.
func (c *contender) refuseOwn(ctx context.Context) error {
	own := owners()
	if len(own) == 0 || !c.lock.nests() {
		return nil
	}
	looking := ctx
	if c.atMost > 0 {
		var cancel context.CancelFunc
		looking, cancel = context.WithTimeoutCause(ctx, c.left(), c.redis.unanswered(c.atMost))
		defer cancel()
	}
	state, err := c.lock.state(looking)
	if err != nil {
		return cmp.Or(context.Cause(looking), err)
	}
	for _, h := range state.Holders {
		if slices.Contains(own, h.Session) {
			return fmt.Errorf("lock %q: exec would wait for itself: "+
				"the lockline exec that it runs under holds it (%v)", c.name, h)
		}
	}
	return nil
}

// wait waits for the lock until ctx ends or the time of --wait has passed. It calls granted when it stops
// waiting.
func (c *contender) wait(ctx context.Context, granted func()) (context.Context, *rlock.Hold, error) {
	options := []rlock.Option{rlock.HoldAtLeast(c.atLeast), rlock.WithNote(c.note)}
	if c.bounded {
		options = append(options, rlock.WaitAtMost(c.left()))
	}
	end := c.reportWait(ctx)
	held, hold, err := c.lock.Lock(ctx, options...)
	end()
	if err == nil && c.replicas > 0 {
		leased, cancel := context.WithTimeoutCause(ctx, c.lease,
			fmt.Errorf("they have the time of the lease, %v", c.lease))
		err = hold.WaitReplicas(leased, c.replicas)
		cancel()
	}
	granted()
	switch err = cmp.Or(context.Cause(ctx), err); {
	case err == nil:
		return held, hold, nil
	case errors.Is(err, rlock.ErrLocked):
		by := ""
		looking, cancel := context.WithDeadline(ctx, c.leaveBy())
		if s, known := c.holder(looking); known && s.Held {
			by = "; held by " + s.Holder.String()
		}
		cancel()
		err = fmt.Errorf("lock %q: not free within %v%s", c.name, c.atMost, by)
		if c.quiet { // with --quiet, the exit code is enough
			err = nil
		}
		return nil, nil, &exitError{c.locked, err}
	}
	c.free(hold) // the lock may have been granted although ctx has ended
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w%s", err, shortWait(c.atMost))
	}
	return nil, nil, err
}

// free frees the lock of a command that did not run, even if --hold-at-least would keep the lock taken. hold
// may be nil. free waits for Redis until the time of leaveBy.
func (c *contender) free(hold *rlock.Hold) {
	ctx, cancel := context.WithDeadline(context.Background(), c.leaveBy())
	defer cancel()
	if c.atLeast > 0 && hold != nil {
		_, _ = c.lock.ForceUnlockToken(ctx, hold.Token())
	}
	_ = hold.Unlock(ctx)
}

// silence is the time after which a wait is reported.
const silence = time.Second

// reportWait writes the present holder once, when the wait has lasted for a second. With --quiet, it writes
// nothing. The caller must call end at the end of the wait.
func (c *contender) reportWait(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	if c.quiet {
		return cancel
	}
	var reporting sync.WaitGroup
	reporting.Go(func() {
		select {
		case <-time.After(silence):
		case <-ctx.Done():
			return
		}
		s, known := c.holder(ctx)
		text := "its holder is not known"
		switch {
		case ctx.Err() != nil,
			known && s.Held && s.Holder.Session == c.session.ID(): // exec has just got the lock
			return
		case known && s.Held:
			text = fmt.Sprintf("held by %v, lease %s", s.Holder, short(s.RemainingMS))
		case known:
			text = "it is free at this moment: it was just released, " +
				"or Redis refuses new locks, and lockline doctor says why"
		default: // perhaps a replica, which refuses to return the state
			if role, _ := c.redis.hello(ctx, c.rdb.Process, "role"); role == "replica" {
				text = "this server is a replica, which grants nothing"
			}
		}
		complain(c.errOut, fmt.Errorf("lock %q: waiting; %s", c.name, text))
	})
	return func() { cancel(); reporting.Wait() }
}

// holder returns the state of the lock with its holder. known is false if Redis did not return the state.
func (c *contender) holder(ctx context.Context) (s lockState, known bool) {
	ctx, cancel := context.WithTimeout(ctx, shutdownWait)
	defer cancel()
	s, err := c.lock.state(ctx)
	return s, err == nil
}

// shutdownWait is the longest time for which the end of lockline is delayed if Redis does not answer.
const shutdownWait = 2 * time.Second

func closeSession(session *rlock.Session) { closeSessionBy(session, time.Now().Add(shutdownWait)) }

func closeSessionBy(session *rlock.Session, t time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), t)
	defer cancel()
	_ = session.Shutdown(ctx)
}

func unlockBy(hold lease, t time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), t)
	defer cancel()
	return hold.Unlock(ctx)
}

// lastTrouble is an observer that keeps the error of the last failed renewal and the error of the loss.
type lastTrouble struct{ err, lost atomic.Pointer[error] }

func (t *lastTrouble) Observe(_ context.Context, e rlock.Event) {
	switch e.Type {
	case rlock.EventRenewFailed:
		t.err.Store(&e.Err)
	case rlock.EventLost:
		t.lost.Store(&e.Err)
	}
}

// whyLost returns a colon and the reason of the loss. It returns "" if the reason is not known.
func (t *lastTrouble) whyLost() string {
	if err := t.lost.Load(); err != nil {
		return ": " + strings.TrimPrefix(say(*err), "lock lost: ")
	}
	return ""
}

func (t *lastTrouble) String() string {
	if err := t.err.Load(); err != nil {
		return say(*err)
	}
	return "no answer from Redis"
}
