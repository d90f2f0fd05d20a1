package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// kind is what a process of the demo reports.
type kind string

const (
	waiting  kind = "waiting"  // is about to call Lock
	entered  kind = "entered"  // Lock has returned
	nested   kind = "nested"   // a nested Lock has returned
	unnested kind = "unnested" // is about to unlock the nested hold
	stalled  kind = "stalled"  // has read the counter, and will stand still there
	wrote    kind = "wrote"    // has written the counter
	looked   kind = "looked"   // has asked Redis for the holder and the waiters of a fair lock
	left     kind = "left"     // is about to call Unlock
	hindered kind = "hindered" // a server failed in the midst of a visit, which is over
	failed   kind = "failed"
)

// event is a line of a process's stdout. At is wall clock time: all processes
// of the demo run on one machine.
type event struct {
	Process int            `json:"process"` // 0: the one that directs the others
	At      int64          `json:"at"`      // Unix time in nanoseconds
	Kind    kind           `json:"kind"`
	Token   int64          `json:"token,omitempty"`
	Count   int            `json:"count,omitempty"`   // the counter as read or written
	Session string         `json:"session,omitempty"` // waiting: the waiter's
	Owner   string         `json:"owner,omitempty"`   // looked: the acquisition that holds, with Token
	Queue   []rlock.Waiter `json:"queue,omitempty"`   // looked: those that wait
	Error   string         `json:"error,omitempty"`
}

func (e event) at() time.Time { return time.Unix(0, e.At) }

// seen is the event of having got this state from Redis just now.
func seen(s rlock.State) event {
	return event{At: time.Now().UnixNano(), Kind: looked, Token: s.Token, Owner: s.Owner, Queue: s.Queue}
}

// assignment is the first line of a process's stdin. It is not in the
// arguments, where any user could read the password of the URL.
type assignment struct {
	Process  int
	Redis    []target // of several servers, a majority has the lock
	Prefix   string
	Lock     string
	File     string
	Lease    time.Duration
	Liveness time.Duration // of the waiters of a fair lock; 0: the lock is not fair
}

// opened is the lock that the demo is about, and what it needs.
type opened struct {
	lock     operated
	sessions []*rlock.Session
	clients  []redis.UniversalClient
}

func (o *opened) close() {
	for _, s := range o.sessions {
		s.Close()
	}
	for _, c := range o.clients {
		c.Close()
	}
}

func (a assignment) open(ctx context.Context, label string) (_ *opened, err error) {
	options := []rlock.SessionOption{rlock.WithPrefix(a.Prefix), rlock.WithWatchdogTimeout(a.Lease), rlock.WithLabel(label)}
	if len(a.Redis) > 1 { // a server will be killed: the verdict, not the log, tells what came of it
		options = append(options, rlock.WithLogger(slog.New(slog.DiscardHandler)))
	}
	if a.Liveness > 0 {
		options = append(options, rlock.WithWaiterTimeout(a.Liveness))
	}
	o := &opened{}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	for _, t := range a.Redis {
		rdb, err := t.open(ctx)
		if err != nil {
			return nil, err
		}
		o.clients = append(o.clients, rdb)
		session, err := rlock.NewSession(rdb, options...)
		if err != nil {
			return nil, err
		}
		o.sessions = append(o.sessions, session)
	}
	switch {
	case len(o.sessions) > 1:
		// A busy machine is not a dead server: that refuses connections at once.
		quorum, err := multilock.NewQuorum(o.sessions, multilock.WithServerTimeout(a.Lease*2/5))
		if err != nil {
			return nil, err
		}
		o.lock = quorum.New(a.Lock)
	case a.Liveness > 0:
		o.lock = fairlock.New(o.sessions[0], a.Lock)
	default:
		o.lock = rlock.New(o.sessions[0], a.Lock)
	}
	return o, nil
}

// After the assignment, stdin brings these orders, and its end is the order to
// stop: so a process never survives its parent for long.
const (
	orderStall = "stall" // at the next hold
	orderGo    = "go"    // to a process that has stalled
)

func demoProcessCommand() *cli.Command {
	return &cli.Command{
		Name:   "demo-process",
		Usage:  "one of the processes that lockline demo starts",
		Hidden: true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			leaveSignals()
			return runProcess(ctx, os.Stdin, cmd.Root().Writer)
		},
	}
}

type process struct {
	assignment
	session  string // its id, the first one of several
	lock     operated
	events   *json.Encoder
	toStall  atomic.Bool
	goOn     chan struct{}
	stopping chan struct{} // closed when stdin ends
}

func runProcess(ctx context.Context, orders io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(orders)
	if !lines.Scan() {
		return errors.New("demo-process is started by lockline demo")
	}
	p := &process{events: json.NewEncoder(out), goOn: make(chan struct{}, 1), stopping: make(chan struct{})}
	if err := json.Unmarshal(lines.Bytes(), &p.assignment); err != nil {
		return fmt.Errorf("demo-process: %w", err)
	}
	go p.obey(lines)

	opened, err := p.open(ctx, fmt.Sprintf("demo process %d", p.Process))
	if err != nil {
		return err
	}
	defer opened.close()
	p.session, p.lock = opened.sessions[0].ID(), opened.lock
	if err := p.work(ctx); err != nil {
		p.report(event{Kind: failed, Error: say(err)})
		return err
	}
	return nil
}

func (p *process) obey(lines *bufio.Scanner) {
	for lines.Scan() {
		switch lines.Text() {
		case orderStall:
			p.toStall.Store(true)
		case orderGo:
			p.toStall.Store(false)
			p.goOn <- struct{}{}
		}
	}
	close(p.stopping)
}

// report can do nothing about its own failure: the parent is gone, then.
func (p *process) report(e event) {
	e.Process, e.At = p.Process, time.Now().UnixNano()
	_ = p.events.Encode(e)
}

// work contends for the lock until it is told to stop. Every third time it
// enters twice, as code does whose layers lock for themselves.
func (p *process) work(ctx context.Context) error {
	for round := p.Process; p.pause(30 * time.Millisecond); round++ {
		inside := p.increment
		if round%3 == 0 {
			inside = p.reenter
		}
		err := p.visit(ctx, inside)
		switch {
		case err == nil:
		case len(p.Redis) > 1 && !errors.Is(err, rlock.ErrLost): // one of the bare majority that had granted was killed, say
			p.report(event{Kind: hindered, Error: say(err)})
		default:
			return err
		}
	}
	return nil
}

// visit: lock, do what is to be done inside, unlock.
func (p *process) visit(ctx context.Context, inside func(context.Context) error) error {
	p.report(event{Kind: waiting, Session: p.session})
	held, hold, err := p.lock.Lock(ctx)
	if err != nil {
		return err
	}
	p.report(event{Kind: entered, Token: hold.Token()})
	err = inside(held)
	p.report(event{Kind: left})
	return errors.Join(err, hold.Unlock(ctx))
}

// reenter takes the lock that this process has already. The context says so.
func (p *process) reenter(ctx context.Context) error {
	held, hold, err := p.lock.Lock(ctx)
	if err != nil {
		return err
	}
	p.report(event{Kind: nested, Token: hold.Token()})
	err = p.increment(held)
	p.report(event{Kind: unnested})
	return errors.Join(err, hold.Unlock(ctx))
}

// increment loses counts whenever two do it at once: that is what the lock is for.
func (p *process) increment(ctx context.Context) error {
	count, err := readCounter(p.File)
	if err != nil {
		return err
	}
	if p.toStall.Load() {
		p.report(event{Kind: stalled, Count: count})
		select {
		case <-p.goOn:
		case <-p.stopping: // the parent kills this process before
			return nil
		}
	}
	p.pause(20 * time.Millisecond)
	if ctx.Err() != nil {
		return fmt.Errorf("inside the lock: %s", say(context.Cause(ctx)))
	}
	if err := os.WriteFile(p.File, []byte(strconv.Itoa(count+1)), 0o600); err != nil {
		return err
	}
	p.report(event{Kind: wrote, Count: count + 1})
	return p.look(ctx)
}

// look reads the queue shortly before the lock is handed on.
func (p *process) look(ctx context.Context) error {
	if p.Liveness == 0 {
		return nil
	}
	state, err := p.lock.Inspect(ctx)
	if err != nil {
		return err
	}
	p.report(seen(state))
	return nil
}

// pause takes up to d, and reports whether to go on.
func (p *process) pause(d time.Duration) bool {
	timer := time.NewTimer(rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.stopping:
		return false
	}
}

func readCounter(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
