package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/child"
	"github.com/lockline/lockline/rlock"
)

const (
	demoLease    = 2 * time.Second
	demoLiveness = 2 * time.Second // of waiters for the fair lock
	// demoSlack is what recovery may take beyond these, for busy machines: the
	// verdict tells the time itself, too.
	demoSlack = 3 * time.Second
	// settling is how long events wait for earlier ones from other pipes, so
	// that what is shown is in the order in which it happened.
	settling = 60 * time.Millisecond
	// patience is how long the demo waits for what should take a moment.
	patience = 15 * time.Second
)

type demoOptions struct {
	redis     target // without a URL, an embedded server
	fair      bool
	redlock   bool
	processes int
	duration  time.Duration
}

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "several processes share one lock, one is killed while it holds it, and the outcome is checked",
		Description: "Starts several processes that increment a counter in a file (read, pause, write)\n" +
			"under one lock, kills one of them while it holds the lock, and shows the holder,\n" +
			"its fencing token, and the waiters. At the end it checks what happened. The exit\n" +
			"code is 0 if all was right, and 1 if not.\n\n" +
			"With --fair the lock is a fair one. The queue that Redis keeps is shown, too. One\n" +
			"process is killed while it is first in the queue. It is checked that the lock was\n" +
			"given in the order of arrival.\n\n" +
			"With --redlock the lock is one on a majority of five servers, and one of these is\n" +
			"killed, too. It is checked that the others had the lock from then on.",
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Flags: append(tlsFlags(),
			&cli.StringFlag{Name: "redis", Usage: "`URL` of a Redis to use, such as redis://127.0.0.1:6379/0 (default: one embedded in this program)"},
			redisFileFlag(),
			&cli.BoolFlag{Name: "fair", Usage: "share a fair lock: first come, first served"},
			&cli.BoolFlag{Name: "redlock", Usage: "share a lock on a majority of five servers, embedded in this program"},
			&cli.IntFlag{Name: "processes", Value: 4, Usage: "how many processes, 2 to 9; with --fair at least 3"},
			&cli.DurationFlag{Name: "for", Value: 7 * time.Second, Usage: "how long they contend; longer if a killed process still keeps the others waiting by then"},
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			o := demoOptions{redis: targetOf(cmd), fair: cmd.Bool("fair"), redlock: cmd.Bool("redlock"), processes: cmd.Int("processes"), duration: cmd.Duration("for")}
			switch {
			case cmd.Args().Present():
				return fmt.Errorf("demo takes no arguments, got %q; see lockline demo --help", cmd.Args().First())
			case o.processes < 2 || o.processes > 9:
				return fmt.Errorf("--processes must be 2 to 9, not %d", o.processes)
			case o.fair && o.processes < 3:
				return fmt.Errorf("--processes must be 3 to 9 with --fair, not %d", o.processes)
			case o.redlock && (o.fair || o.redis.URL != "" || o.redis.wrong != nil):
				return fmt.Errorf("--redlock goes with neither --fair nor --redis: it has five servers of its own")
			case o.duration < 0:
				return fmt.Errorf("--for must not be negative")
			}
			ctx, stop := untilSignal(ctx)
			defer stop()
			return runDemo(ctx, o, cmd.Root().Writer)
		},
	}
}

// runDemo sets the stage, has the play directed, and says how it went.
func runDemo(ctx context.Context, o demoOptions, out io.Writer) error {
	dir, err := os.MkdirTemp("", "lockline-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "counter")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		return err
	}
	server, err := openServer(ctx, o)
	if err != nil {
		return err
	}
	defer server.close()

	d := newDirector(o, newScreen(out, o))
	d.server = server
	a := assignment{Redis: server.servers, Prefix: server.prefix, Lock: "counter", File: file, Lease: demoLease, Liveness: d.liveness}
	if o.fair {
		opened, err := a.open(ctx, "demo")
		if err != nil {
			return err
		}
		defer opened.close()
		d.lock = opened.lock
	}
	d.screen.intro(server.says, d.victim)
	if err := d.start(ctx, a); err != nil {
		return err
	}
	if err := d.play(ctx); err != nil {
		return err
	}
	d.counter, d.fileErr = readCounter(file)
	v := judge(d.account)
	d.screen.verdict(v)
	if !v.right() {
		return &exitError{code: exitWrong}
	}
	return nil
}

// server is the Redis that the demo uses, or several, and its corner in it.
type server struct {
	servers      []target
	prefix, says string
	embedded     []*miniredis.Miniredis
	close        func()
}

// redlockServers is how many servers a RedLock is shown on.
const redlockServers = 5

func openServer(ctx context.Context, o demoOptions) (*server, error) {
	s := &server{prefix: "lockline-demo-" + rand.Text()[:12]}
	if o.redis.URL == "" {
		return s, s.embed(o)
	}
	s.servers = []target{o.redis}
	rdb, err := o.redis.open(ctx)
	if err == nil {
		if err = rdb.Ping(ctx).Err(); err != nil {
			rdb.Close()
			err = fmt.Errorf("redis at %s: %w", o.redis.host(), err)
		}
	}
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	if err != nil {
		return nil, err
	}
	s.says = "at " + o.redis.host() + ", keys " + s.prefix + ":*"
	s.close = func() {
		sweep(rdb, s.prefix)
		rdb.Close()
	}
	return s, nil
}

// embed starts servers in this process.
func (s *server) embed(o demoOptions) error {
	s.close = func() {
		for _, m := range s.embedded {
			m.Close()
		}
	}
	n := 1
	if o.redlock {
		n = redlockServers
	}
	var addrs []string
	for range n {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.StartAddr("127.0.0.1:0"); err != nil {
			s.close()
			return err
		}
		s.embedded = append(s.embedded, m)
		s.servers = append(s.servers, target{URL: "redis://" + m.Addr()})
		addrs = append(addrs, m.Addr())
	}
	s.says = "embedded in this program, at " + strings.Join(addrs, ", ")
	return nil
}

// kill ends one of several embedded servers.
func (s *server) kill(i int) string {
	addr := s.embedded[i].Addr()
	s.embedded[i].Close()
	return addr
}

// sweep deletes what the demo left in a user's Redis, until there is nothing twice: requests of processes that were killed may be
// under way. It would expire within about a minute by itself, so this does not insist.
func sweep(rdb redis.UniversalClient, prefix string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for clean := 0; clean < 2 && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		clean++
		var found atomic.Bool
		_ = eachMaster(ctx, rdb, func(ctx context.Context, master *redis.Client) error {
			keys := master.Scan(ctx, 0, prefix+":*", 1000).Iterator()
			for keys.Next(ctx) {
				found.Store(true)
				master.Del(ctx, keys.Val())
			}
			return nil
		})
		if found.Load() {
			clean = 0
		}
	}
}

// phase is how far the play has come.
type phase int

const (
	contending phase = iota
	stalling         // the victim is to stand still at its next hold
	skipping         // fair: the first in the queue was killed; then they contend again
	degraded         // redlock: a server was killed; then they contend again
	orphaned         // the victim was killed; its lease runs out
	recovered
	stopping
)

// director starts the processes, tells them what to do, and collects what they report.
type director struct {
	options demoOptions
	server  *server
	screen  *screen
	victim  int
	lock    operated       // fair: to look at
	queue   []rlock.Waiter // when last looked at

	children []*child.Child // process 1 first
	news     chan child.News[event]
	running  int
	pending  []event // arrived, not yet settled

	phase phase
	since time.Time // of the phase
	begun time.Time
	alarm bool // something went wrong: end the play
	account
}

func newDirector(o demoOptions, s *screen) *director {
	now := time.Now()
	d := &director{
		options: o, screen: s, victim: 2, news: make(chan child.News[event], 64), begun: now, since: now,
		account: account{processes: o.processes, lease: demoLease, slack: demoSlack, redlock: o.redlock},
	}
	if o.fair {
		d.liveness = demoLiveness
	}
	return d
}

// start starts all processes, or none. They are killed if ctx ends.
func (d *director) start(ctx context.Context, a assignment) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for n := 1; n <= d.processes; n++ {
		a.Process = n
		c, err := child.Start(exec.CommandContext(ctx, program, "demo-process"), n, a, d.news)
		if err != nil {
			d.killAll()
			for ; d.running > 0; d.running-- {
				for !(<-d.news).Ended {
				}
			}
			return fmt.Errorf("starting process %d: %w", n, err)
		}
		d.children = append(d.children, c)
		d.running++
	}
	return nil
}

// play directs until the last process has ended.
func (d *director) play(ctx context.Context) error {
	ticker := time.NewTicker(settling / 2)
	defer ticker.Stop()
	for d.running > 0 {
		select {
		case n := <-d.news:
			d.take(n)
		case <-ticker.C:
			d.settle(time.Now().Add(-settling))
			d.look(ctx)
			d.direct()
		}
	}
	d.settle(time.Now())
	for _, c := range d.children {
		c.Orders.Close()
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}

func (d *director) take(n child.News[event]) {
	if !n.Ended {
		if n.Err != nil {
			n.Event = event{At: time.Now().UnixNano(), Kind: failed, Error: n.Err.Error()}
		}
		n.Event.Process = n.Child
		d.pending = append(d.pending, n.Event)
		return
	}
	d.running--
	e := end{process: n.Child, how: "exit status 0"}
	if n.Err != nil {
		e.how = n.Err.Error()
	}
	e.planned = d.killed(n.Child) || d.phase == stopping && n.Err == nil
	d.ends = append(d.ends, e)
	d.alarm = d.alarm || !e.planned
}

// settle records and shows the events until then, in the order in which they happened.
func (d *director) settle(until time.Time) {
	slices.SortStableFunc(d.pending, func(a, b event) int { return a.at().Compare(b.at()) })
	n := 0
	for n < len(d.pending) && !d.pending[n].at().After(until) {
		e := d.pending[n]
		n++
		d.events = append(d.events, e)
		d.alarm = d.alarm || e.Kind == failed
		if d.phase == orphaned && e.Kind == entered && e.at().After(d.kill.at) {
			d.screen.say(e.at(), "lease over: process %d holds %.2f s after the kill", e.Process, e.at().Sub(d.kill.at).Seconds())
			d.turn(recovered)
		}
		if d.phase == skipping && e.Kind == entered && e.at().After(d.waiter.at) {
			d.screen.say(e.at(), "dead waiter skipped: process %d holds %.2f s after the kill", e.Process, e.at().Sub(d.waiter.at).Seconds())
			d.turn(contending)
		}
		if d.phase == degraded && e.Kind == entered && e.at().After(d.outage) { // only now a holder may die: its lease would hide the server's death
			d.turn(contending)
		}
		d.screen.show(e)
	}
	d.pending = slices.Delete(d.pending, 0, n)
}

// look reads the queue. What it misses, it sees the next time.
func (d *director) look(ctx context.Context) {
	if d.lock == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	state, err := d.lock.Inspect(ctx)
	if err == nil {
		d.pending = append(d.pending, seen(state))
	}
	d.queue = state.Queue
}

func (d *director) turn(p phase) { d.phase, d.since = p, time.Now() }

// direct does what the phase calls for.
func (d *director) direct() {
	now := time.Now()
	here := now.Sub(d.since)
	switch {
	case d.phase == stopping:
		if here > patience {
			d.killAll()
		}
	case d.alarm, here > d.options.duration+patience:
		d.stop()
	case d.phase == contending && d.options.redlock && d.outage.IsZero() && here > d.options.duration*2/10 && d.screen.allHaveHeld():
		addr := d.server.kill(0)
		d.outage = time.Now()
		d.screen.say(d.outage, "server %s is killed: %d of %d are left", addr, redlockServers-1, redlockServers)
		d.turn(degraded)
	case d.phase == contending && here > d.options.duration*3/10 && d.screen.allHaveHeld():
		_, _ = fmt.Fprintln(d.children[d.victim-1].Orders, orderStall)
		d.turn(stalling)
	case d.phase == stalling && d.screen.allWaitFor(d.victim):
		if d.lock == nil || d.waiter != nil {
			d.killVictim()
		} else if len(d.queue) == d.processes-1 {
			d.killWaiter()
		}
	case d.phase == skipping:
		d.screen.heldUp(now, d.waiter.at, "dead waiter is given up")
	case d.phase == orphaned:
		d.screen.heldUp(now, d.kill.at, "dead holder's lease is over")
	case d.phase == recovered && here > time.Second && now.Sub(d.begun) > d.options.duration:
		d.stop()
	}
}

// killVictim comes when the victim's events say that it holds, and stands still
// between reading the counter and writing it.
func (d *director) killVictim() {
	d.kill = d.killOne(d.victim, fmt.Sprintf("has read the counter (%d), has not written it", d.screen.count))
	d.turn(orphaned)
}

// killWaiter comes when the victim stands still inside and all others stand in
// the queue. The victim leaves only when the first of them is dead.
func (d *director) killWaiter() {
	d.waiter = d.killOne(d.screen.whose(d.queue[0]), fmt.Sprintf("is first in the queue (%s)", d.screen.places(d.queue)))
	_, _ = fmt.Fprintln(d.children[d.victim-1].Orders, orderGo)
	d.turn(skipping)
}

func (d *director) killOne(number int, state string) *kill {
	k := &kill{process: number, at: time.Now()}
	c := d.children[number-1]
	c.Kill()
	d.screen.killed(k.at, number, c.PID(), state)
	return k
}

// stop lets every process finish what it is at.
func (d *director) stop() {
	for _, c := range d.children {
		c.Orders.Close()
	}
	d.turn(stopping)
}

func (d *director) killAll() {
	for _, c := range d.children {
		c.Kill()
	}
}
