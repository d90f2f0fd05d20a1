package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/child"
)

const (
	demoProcesses   = 4
	stallingProcess = 2 // number of the process that stands still while it holds the lock
	killedProcess   = 3 // number of the process that is killed while it holds the lock

	demoLease = 2 * time.Second
	// demoSlack is the time that a recovery may take in addition to a lease, because machines can be busy.
	demoSlack = 3 * time.Second
	// patience is the time for which the demo waits for an event that should come at once.
	patience = 15 * time.Second
)

func demoCommand() *cli.Command {
	access := accessFlags(&cli.StringFlag{Name: "redis",
		Usage: "`URL` of a Redis, such as redis://127.0.0.1:6379/0 (default: a server in this program)"})
	for _, f := range access {
		// The variables name the Redis of the user's programs, and the demo must not write there by accident.
		f.(*cli.StringFlag).Sources = cli.ValueSourceChain{}
	}
	return &cli.Command{
		Name:  "demo",
		Usage: "processes share a lock, one stands still and one is killed, and the outcome is checked",
		Description: "Starts four processes that increment a counter (read, pause, write) under one lock.\n" +
			"One of them is stopped while it holds the lock, for longer than its lease. When it\n" +
			"continues, it writes, and its fencing token is refused. Another one is killed while it\n" +
			"holds the lock. Rows show the holder, its fencing token, and the waiters. At the end,\n" +
			"the demo checks what happened. The exit code is 0 if all was right, and 1 if not.\n\n" +
			"By default, the demo uses a server in its own memory. LOCKLINE_REDIS and the other\n" +
			"variables of lockline have no effect on the demo. In the Redis of --redis, the keys of\n" +
			"the demo begin with lockline-demo-, and are gone within a minute.",
		Flags: append(access,
			&cli.DurationFlag{Name: "for", Value: 5 * time.Second,
				Usage: "time for which the processes contend, without the leases for which they wait"},
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return misused(cmd, "demo takes no arguments, got %q", cmd.Args().First())
			}
			if err := checkTimeOrZero(cmd, "for"); err != nil {
				return err
			}
			ctx, stop := untilSignal(ctx)
			defer stop()
			at := targetOf(cmd)
			return at.located(runDemo(ctx, at, cmd.Duration("for"), cmd.Root().Writer))
		},
	}
}

// runDemo runs the processes, shows them, and prints the verdict.
func runDemo(ctx context.Context, redis target, contend time.Duration, out io.Writer) error {
	prefix := "lockline-demo-" + rand.Text()[:12]
	says := "at " + redis.host() + ", keys " + prefix + ":*"
	if redis.URL == "" && redis.wrong == nil {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.StartAddr("127.0.0.1:0"); err != nil {
			return err
		}
		defer m.Close()
		redis.URL, says = "redis://"+m.Addr(), "embedded in this program, at "+m.Addr()
	}
	rdb, err := redis.open(ctx) // opening the client here reports an error only once
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	defer rdb.Close()
	if role, _ := redis.hello(ctx, rdb.Process, "role"); role == "replica" {
		return errors.New("this server is a replica, which grants nothing: name the master, or its Sentinels")
	}
	d := newDirector(contend, newScreen(out, contend))
	d.screen.intro(says)
	if err = d.start(ctx, assignment{Redis: redis, Prefix: prefix, Lease: demoLease}); err != nil {
		return err
	}
	d.play()
	if ctx.Err() != nil {
		return errInterrupted
	}
	v := judge(d.account)
	d.screen.verdict(v)
	if !v.right() {
		return &exitError{code: exitWrong}
	}
	return nil
}

// An act is a part of the demo. The acts follow in this order.
type act int

const (
	contending      act = iota
	stalling            // the next answer to the stalling process will order it to take a fixed lease
	poised              // the process has that order, and will be stopped in its next hold
	stalled             // the process waits for an answer while its lease ends
	resuming            // another process has the lock, and the stopped one continues
	contendingAgain     // processes contend for the lock, as at first
	killing             // a process will be killed in its next hold
	orphaned            // the process was killed, and its lease has not ended yet
	recovered           // another process has the lock
	stopping            // each process ends after its next hold
)

// A store has the counter that the lock protects. It refuses requests with a token that is lower than the
// token of an earlier request.
type store struct {
	count int
	token int64 // the highest token that was seen
}

func (s *store) refuses(token int64) bool {
	refused := token < s.token
	s.token = max(s.token, token)
	return refused
}

// A director starts the processes, and answers their requests to the store. It makes one process stand still,
// and kills another process.
type director struct {
	contend time.Duration
	screen  *screen
	store   store

	children []*child.Child // process 1 first
	news     chan child.News[event]
	running  int
	withheld answer // answer that the stopped process has not got yet

	act   act
	since time.Time // start of the act
	account
}

func newDirector(contend time.Duration, s *screen) *director {
	return &director{contend: contend, screen: s, news: make(chan child.News[event], 64), since: time.Now()}
}

// start starts all processes. They are killed if ctx ends, and they end by themselves if this process has
// ended.
func (d *director) start(ctx context.Context, a assignment) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for n := 1; n <= demoProcesses; n++ {
		a.Process = n
		c, err := child.Start(exec.CommandContext(ctx, program, "demo-process"), n, a, d.news)
		if err != nil {
			return fmt.Errorf("starting process %d: %w", n, err)
		}
		d.children = append(d.children, c)
		d.running++
	}
	return nil
}

// play runs the demo until the last process has ended.
func (d *director) play() {
	ticks := time.Tick(50 * time.Millisecond)
	for d.running > 0 {
		select {
		case n := <-d.news:
			d.take(n)
		case <-ticks:
			d.direct()
		}
	}
	for _, c := range d.children {
		c.Orders.Close()
	}
}

func (d *director) take(n child.News[event]) {
	switch {
	case n.Ended:
		d.running--
		e := end{process: n.Child, how: "exit status 0"}
		if n.Err != nil {
			e.how = n.Err.Error()
		}
		e.planned = n.Child == d.kill.process || d.act == stopping && n.Err == nil
		d.ends = append(d.ends, e)
		if !e.planned {
			d.killAll()
		}
	case n.Err == nil:
		n.Event.Process, n.Event.at = n.Child, time.Now()
		d.serve(n.Event)
	default:
		d.children[n.Child-1].Kill()
	}
}

// serve handles an event of a process, and answers the process, unless the kind of the event is waiting. To
// stop or kill a process while it holds the lock, serve gives no answer. A process waits for the answer
// before it unlocks, so events of later holders come later.
func (d *director) serve(e event) {
	e.Refused = e.Kind != waiting && d.store.refuses(e.Token)
	d.events = append(d.events, e)
	d.screen.show(e)
	midst := d.act == stalled || d.act == resuming || d.act == orphaned // remarks are shown instead of rows
	if e.Kind == reading && !midst && e.at.Sub(d.screen.row) >= d.screen.every {
		d.screen.printRow(e)
	}
	a := answer{Count: d.store.count, Stop: d.act == stopping}
	switch {
	case e.Kind == writing && d.act == stalling && e.Process == stallingProcess:
		a.Fixed = true
		d.turn(poised)
	case e.Kind == reading && d.act == poised && e.Process == stallingProcess:
		d.stall = moment{e.Process, e.at}
		d.withheld = a
		d.screen.mark(e, "STALL", "stands still: nothing renews its lease")
		d.turn(stalled)
		return
	case e.Kind == reading && d.act == killing && e.Process == killedProcess:
		d.kill = moment{e.Process, e.at}
		c := d.children[e.Process-1]
		c.Kill()
		d.screen.mark(e, "dead", fmt.Sprintf("gets SIGKILL, pid %d", c.PID()))
		d.turn(orphaned)
		return
	case e.Kind == reading && d.act == stalled:
		d.screen.recovered(e, d.stall)
		d.screen.say(e.at, "process %d goes on, and writes", stallingProcess)
		d.turn(resuming)
		d.answer(stallingProcess, d.withheld)
	case e.Kind == reading && d.act == orphaned:
		d.screen.recovered(e, d.kill)
		d.turn(recovered)
	case e.Kind == writing && d.act == resuming && e.Process == stallingProcess:
		outcome := map[bool]string{true: "refused", false: "written"}[e.Refused]
		d.screen.say(e.at, "its token is %d, the counter has seen %d: %s", e.Token, d.store.token, outcome)
		d.turn(contendingAgain)
	}
	if e.Kind == writing && !e.Refused {
		d.store.count = e.Count
	}
	if e.Kind != waiting {
		d.answer(e.Process, a)
	}
}

// answer sends an answer to a process. It ignores an error, because take handles the end of a process.
func (d *director) answer(process int, a answer) {
	_ = json.NewEncoder(d.children[process-1].Orders).Encode(a)
}

func (d *director) turn(a act) { d.act, d.since = a, time.Now() }

// direct begins the next act when the present one has lasted long enough. If an act lasts far too long,
// direct kills all processes.
func (d *director) direct() {
	now := time.Now()
	here := now.Sub(d.since)
	switch {
	case here > d.contend/3+patience:
		d.killAll()
	case d.act == stalled:
		d.screen.heldUp(now, d.stall)
	case d.act == orphaned:
		d.screen.heldUp(now, d.kill)
	case here < d.contend/3:
	case d.act == contending && d.screen.allHaveHeld(), d.act == contendingAgain, d.act == recovered:
		d.turn(d.act + 1)
	}
}

func (d *director) killAll() {
	for _, c := range d.children {
		c.Kill()
	}
}
