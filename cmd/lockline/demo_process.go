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

// kind is what a process of the demo reports.
type kind string

const (
	waiting kind = "waiting" // is about to call Lock
	reading kind = "reading" // has the lock, and asks for the counter
	writing kind = "writing" // asks to write the counter
)

// event is a line of a process's stdout.
type event struct {
	Kind  kind
	Token int64  `json:",omitempty"` // of the hold
	Count int    `json:",omitempty"` // writing: the new one
	Lost  string `json:",omitempty"` // writing: what the hold says of its loss

	Process int       `json:"-"`
	Refused bool      `json:"-"` // the store has seen a larger token
	at      time.Time // when it arrived
}

// assignment is the first line of a process's stdin. It is not in the arguments, where any user could read
// the password of the URL.
type assignment struct {
	Process int
	Redis   target
	Prefix  string
	Lease   time.Duration
}

// answer is a further line, for each event but waiting. The end of stdin is the end of the one that answers.
type answer struct {
	Count int
	Fixed bool // take the lock with a fixed lease the next time
	Stop  bool // end after this hold
}

func demoProcessCommand() *cli.Command {
	return &cli.Command{
		Name:   "demo-process",
		Usage:  "one of the processes that lockline demo starts",
		Hidden: true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			// A terminal's ctrl-C and hang-up reach this process, too. The one that has started it decides.
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
		time.Sleep(rand.N(30 * time.Millisecond)) // it works elsewhere
		if last, err = p.visit(ctx, last.Fixed); err != nil {
			return err
		}
	}
	return nil
}

// visit locks, increments the counter and unlocks. It returns the last answer.
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
		if e := hold.Unlock(ctx); !errors.Is(e, rlock.ErrLost) { // of which the write has told
			err = errors.Join(err, e)
		}
	}()
	a, err = p.ask(event{Kind: reading, Token: hold.Token()})
	if err != nil {
		return a, err
	}
	time.Sleep(rand.N(20 * time.Millisecond))
	write := event{Kind: writing, Token: hold.Token(), Count: a.Count + 1}
	if err := hold.Err(); err != nil { // It writes all the same, as code does that cannot look in time.
		write.Lost = say(err)
	}
	return p.ask(write)
}

// ask waits for the answer. A process that is to stand still waits for it longer than its lease.
func (p *process) ask(e event) (a answer, err error) {
	if err := p.events.Encode(e); err != nil {
		return a, err
	}
	return a, p.answers.Decode(&a)
}
