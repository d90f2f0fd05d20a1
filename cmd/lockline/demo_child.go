package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

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
	left     kind = "left"     // is about to call Unlock
	failed   kind = "failed"
)

// event is a line of a process's stdout. At is wall clock time: all processes
// of the demo run on one machine.
type event struct {
	Process int    `json:"process"`
	At      int64  `json:"at"` // Unix time in nanoseconds
	Kind    kind   `json:"kind"`
	Token   int64  `json:"token,omitempty"`
	Count   int    `json:"count,omitempty"` // the counter as read or written
	Error   string `json:"error,omitempty"`
}

func (e event) at() time.Time { return time.Unix(0, e.At) }

// assignment is the first line of a process's stdin. It is not in the
// arguments, where everybody could read the password of the URL.
type assignment struct {
	Process int
	Redis   string
	Prefix  string
	Lock    string
	File    string
	Lease   time.Duration
}

// After the assignment, stdin brings orderStall at most once, and its end is
// the order to stop: so a process never survives its parent for long.
const orderStall = "stall"

func demoProcessCommand() *cli.Command {
	return &cli.Command{
		Name:   "demo-process",
		Usage:  "one of the processes that lockline demo starts",
		Hidden: true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			signal.Ignore(os.Interrupt) // a terminal's ctrl-C reaches all; the parent decides
			return runProcess(ctx, os.Stdin, cmd.Root().Writer)
		},
	}
}

type process struct {
	assignment
	lock     *rlock.Mutex
	events   *json.Encoder
	toStall  atomic.Bool
	stopping chan struct{} // closed when stdin ends
}

func runProcess(ctx context.Context, orders io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(orders)
	if !lines.Scan() {
		return errors.New("demo-process is started by lockline demo")
	}
	p := &process{events: json.NewEncoder(out), stopping: make(chan struct{})}
	if err := json.Unmarshal(lines.Bytes(), &p.assignment); err != nil {
		return fmt.Errorf("demo-process: %w", err)
	}
	go p.obey(lines)

	rdb, err := openRedis(p.Redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	session, err := rlock.NewSession(rdb, rlock.WithPrefix(p.Prefix), rlock.WithWatchdogTimeout(p.Lease),
		rlock.WithLabel(fmt.Sprintf("demo process %d", p.Process)))
	if err != nil {
		return err
	}
	defer session.Close()
	p.lock = rlock.New(session, p.Lock)
	if err := p.work(ctx); err != nil {
		p.report(event{Kind: failed, Error: err.Error()})
		return err
	}
	return nil
}

func (p *process) obey(lines *bufio.Scanner) {
	for lines.Scan() {
		if lines.Text() == orderStall {
			p.toStall.Store(true)
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
		if err := p.visit(ctx, inside); err != nil {
			return err
		}
	}
	return nil
}

// visit: lock, do what is to be done inside, unlock.
func (p *process) visit(ctx context.Context, inside func(context.Context) error) error {
	p.report(event{Kind: waiting})
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
		<-p.stopping // the parent kills this process before
		return nil
	}
	p.pause(20 * time.Millisecond)
	if ctx.Err() != nil {
		return fmt.Errorf("inside the lock: %w", context.Cause(ctx))
	}
	if err := os.WriteFile(p.File, []byte(strconv.Itoa(count+1)), 0o600); err != nil {
		return err
	}
	p.report(event{Kind: wrote, Count: count + 1})
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
