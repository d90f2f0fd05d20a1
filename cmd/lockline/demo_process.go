package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/rlock"
)

// A kind is a kind of event that a process of the demo reports.
type kind string

const (
	waiting kind = "waiting" // the process is about to call Lock
	reading kind = "reading" // the process has the lock, and wants to read the counter
	writing kind = "writing" // the process wants to write the counter
)

// An event is a line of a process's stdout.
type event struct {
	Kind  kind
	Token int64  `json:",omitempty"` // token of the hold
	Count int    `json:",omitempty"` // new value of the counter, if Kind is writing
	Lost  string `json:",omitempty"` // error of a hold that was lost, if Kind is writing

	Process int       `json:"-"`
	Refused bool      `json:"-"` // the store has seen a higher token
	at      time.Time // time at which the event arrived
}

// assignment is the first line of a process's stdin. It is not in the arguments, where any user could read
// the password of the URL.
type assignment struct {
	Process int
	Redis   target
	Prefix  string
	Lease   time.Duration
}

// An answer is a later line of a process's stdin. It answers an event that is not of the kind waiting. Stdin
// ends when the demo has ended.
type answer struct {
	Count int  // value of the counter
	Fixed bool // take the lock with a fixed lease the next time
	Stop  bool // end after this hold
}

func demoProcessCommand() *cli.Command {
	return &cli.Command{
		Name:   "demo-process",
		Usage:  "one of the processes that lockline demo starts",
		Hidden: true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			// ctrl-C and the end of a terminal reach this process, too, but its parent decides when it ends.
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			return runProcess(ctx, os.Stdin, cmd.Root().Writer)
		},
	}
}

type process struct {
	assignment
	lock    *rlock.Mutex
	events  *json.Encoder
	answers *json.Decoder
}

func runProcess(ctx context.Context, in io.Reader, out io.Writer) error {
	p := &process{events: json.NewEncoder(out), answers: json.NewDecoder(in)}
	if err := p.answers.Decode(&p.assignment); err != nil {
		return errors.New("demo-process is started by lockline demo")
	}
	rdb, err := p.Redis.open(ctx)
	if err != nil {
		return err
	}
	defer rdb.Close()
	session, err := newSession(rdb, p.Prefix, fmt.Sprintf("demo process %d", p.Process),
		rlock.WithWatchdogTimeout(p.Lease))
	if err != nil {
		return err
	}
	defer session.Close()
	p.lock = rlock.New(session, "counter")

	var last answer
	for !last.Stop {
		time.Sleep(rand.N(30 * time.Millisecond)) // imitates work without the lock
		if last, err = p.visit(ctx, last.Fixed); err != nil {
			return err
		}
	}
	return nil
}

// visit locks, increments the counter and unlocks. It returns the last answer. If fixed is true, the lease is
// not renewed.
func (p *process) visit(ctx context.Context, fixed bool) (a answer, err error) {
	if err := p.events.Encode(event{Kind: waiting}); err != nil {
		return a, err
	}
	var options []rlock.Option
	if fixed {
		options = append(options, rlock.WithLease(p.Lease))
	}
	_, hold, err := p.lock.Lock(ctx, options...)
	if err != nil {
		return a, err
	}
	defer func() {
		if e := hold.Unlock(ctx); !errors.Is(e, rlock.ErrLost) { // the last event has already reported a loss
			err = errors.Join(err, e)
		}
	}()
	a, err = p.ask(event{Kind: reading, Token: hold.Token()})
	if err != nil {
		return a, err
	}
	time.Sleep(rand.N(20 * time.Millisecond))
	write := event{Kind: writing, Token: hold.Token(), Count: a.Count + 1}
	// The process writes even if the lock is lost, like a program that cannot check its hold in time.
	if err := hold.Err(); err != nil {
		write.Lost = say(err)
	}
	return p.ask(write)
}

// ask sends an event and waits for the answer. The process that the demo stops gets its answer only after its
// lease has ended.
func (p *process) ask(e event) (a answer, err error) {
	if err := p.events.Encode(e); err != nil {
		return a, err
	}
	return a, p.answers.Decode(&a)
}
