package history

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/rlock"
)

// Assignment configures a process. The process reads its Assignment from the first line of its stdin, and
// stops when stdin ends.
type Assignment struct {
	Number     int
	Seed       uint64
	Redis      []string // URLs of the servers
	Prefix     string
	Kinds      []string // kinds of locks, a subset of the result of the function Kinds
	Names      int      // number of locks of each kind
	Lease      time.Duration
	Linger     time.Duration // WithLinger of the sessions; above 0: processes use the locks by turns
	Goroutines int
}

// Kinds of events that a model does not see.
const (
	failed  Kind = "failed"  // an acquisition that returned an error
	renewed Kind = "renewed" // a hold whose deadline may have moved
	gone    Kind = "gone"    // an Unlock before the deadline of a hold that Redis did not know any more
	counts  Kind = "counts"  // a count down that is about to be sent
)

// Kinds of events that are errors by themselves, without a model.
const (
	Stuck Kind = "stuck" // a lock could not be acquired after the faults had ended
	Left  Kind = "left"  // a goroutine, a key or a subscription was left behind
	Died  Kind = "died"  // a process ended by itself
)

// Event is a line of a process's stdout.
type Event struct {
	Op
	Until int64  `json:",omitempty"` // deadline of the hold, for Acquire and renewed
	Error string `json:",omitempty"`
}

const (
	// patience is the time limit of an acquisition after the faults have ended.
	patience = 30 * time.Second
	// latchLifetime is so long that a waiter which misses a notification still waits after patience.
	latchLifetime = 10 * time.Minute
)

// client is one process.
type client struct {
	Assignment
	visits  []visit
	stop    chan struct{} // closed when stdin ends
	mu      sync.Mutex    // guards reports
	reports *json.Encoder
}

// visit is a function that acquires a lock in one of several ways, holds it for a while, and releases it. An
// error means that the lock was not acquired.
type visit func(u user, ctx context.Context) error

// Work runs in each process that Stage starts. It uses the locks until stdin ends. Then it acquires each lock
// once more. It reports a Stuck event if this fails, and a Left event if a goroutine still runs at the end.
func Work(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return errors.New("no assignment")
	}
	c := &client{stop: make(chan struct{}), reports: json.NewEncoder(out)}
	if err := json.Unmarshal(lines.Bytes(), &c.Assignment); err != nil {
		return err
	}
	go func() {
		defer close(c.stop)
		for lines.Scan() {
		}
	}()
	end, err := c.open()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for g := range c.Goroutines {
		wg.Go(func() { c.use(g) })
	}
	wg.Wait()
	end()
	if err := goleak.Find(); err != nil {
		c.report(Event{Op: Op{Kind: Left}, Error: err.Error()})
	}
	return nil
}

func (c *client) open() (end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range ends {
			f()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	redis.SetLogger(silent{})
	// The waiter timeout is one to three leases, so that a waiter may be removed soon after a lease ends, or
	// long after that.
	liveness := c.Lease * time.Duration(1+c.Number%3)
	var sessions []*rlock.Session
	for _, url := range c.Redis {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		o.ReadTimeout, o.DialTimeout = c.Lease/4, c.Lease/4
		rdb := redis.NewClient(o)
		s, err := rlock.NewSession(rdb, rlock.WithPrefix(c.Prefix), rlock.WithWatchdogTimeout(c.Lease),
			rlock.WithWaiterTimeout(liveness),
			rlock.WithLinger(c.Linger), rlock.WithLabel(fmt.Sprintf("process %d", c.Number)),
			rlock.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
		// If a release does not reach a server, the lock is free when the lease ends.
		ends = append(ends, func() { _ = s.Close(); _ = rdb.Close() })
	}
	for _, kind := range c.Kinds {
		p, ok := primitiveOf(kind)
		if !ok {
			return nil, fmt.Errorf("no kind of lock is called %q", kind)
		}
		for i := range c.Names {
			c.visits = append(c.visits, p.visits(sessions, i)...)
		}
	}
	return end, nil
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func (c *client) report(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.reports.Encode(e) // Encode fails only when the parent has ended
}

// use runs in each goroutine and visits locks at random as one owner.
func (c *client) use(goroutine int) {
	rnd := rand.New(rand.NewPCG(c.Seed, uint64(c.Number)<<16+uint64(goroutine)))
	u := user{c, fmt.Sprintf("%d.%d", c.Number, goroutine), rnd}
	for u.pause(4 * time.Millisecond) {
		if c.Linger > 0 && !c.hasTurn() && rnd.IntN(400) > 0 {
			continue
		}
		wait := patience
		if rnd.IntN(10) == 0 {
			wait = time.Duration(rnd.Int64N(int64(20 * time.Millisecond))) // can end during a request
		}
		if u.visit(c.visits[rnd.IntN(len(c.visits))], wait) != nil {
			c.report(Event{Op: Op{Kind: failed}})
		}
	}
	for _, v := range c.visits { // the faults have ended
		if err := u.getIn(v, patience); err != nil {
			c.report(Event{Op: Op{Kind: Stuck}, Error: err.Error()})
		}
	}
}

// hasTurn reports whether it is this process's turn to use the locks. Processes take turns of half a second,
// by their number modulo 3.
func (c *client) hasTurn() bool {
	return time.Now().UnixMilli()/500%3 == int64(c.Number%3)
}

// user is one owner of locks.
type user struct {
	*client
	owner string
	rnd   *rand.Rand
}

func (u user) pause(most time.Duration) bool {
	select {
	case <-u.stop:
		return false
	case <-time.After(time.Duration(u.rnd.Int64N(int64(most)))):
		return true
	}
}

// visit makes a visit that waits for the lock no longer than wait.
func (u user) visit(v visit, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return v(u, ctx)
}

// getIn makes a visit. If the visit fails, getIn repeats it until patience has passed, as a program would. On
// a busy machine, an attempt may fail because all servers are slow for a moment.
func (u user) getIn(v visit, patience time.Duration) error {
	end, pause := time.Now().Add(patience), u.Lease/4
	for {
		err := u.visit(v, time.Until(end))
		if err == nil || time.Until(end) < pause {
			return err
		}
		u.report(Event{Op: Op{Kind: failed}})
		time.Sleep(pause)
	}
}

// holding is a hold of a lock: an rlock.Hold, or a leadership of an election.
type holding interface {
	Name() string
	Token() int64
	Deadline() time.Time
	Err() error
	Unlock(context.Context) error
}

// stay keeps the lock until the hold is lost or a random time has passed. This time is mostly below 2 ms, but
// now and then up to a lease, so that renewals happen. Meanwhile, stay reports new deadlines.
func (u user) stay(held context.Context, hold holding) {
	most := 2 * time.Millisecond
	if u.rnd.IntN(100) == 0 {
		most = u.Lease
	}
	end := time.After(time.Duration(u.rnd.Int64N(int64(most))))
	for {
		select {
		case <-held.Done():
			return
		case <-end:
			return
		case <-time.After(u.Lease / 8):
			for _, h := range parts(hold) {
				u.report(Event{Op: Op{Lock: h.Name(), Owner: u.owner, Kind: renewed}, Until: until(h)})
			}
		}
	}
}

// until converts the hold's deadline to the wall clock, which all processes share.
func until(h holding) int64 {
	now := time.Now()
	return now.Add(h.Deadline().Sub(now)).UnixNano()
}

// parts returns the holds of single locks that make up a hold.
func parts(h holding) (all []holding) {
	if h, ok := h.(*rlock.Hold); ok {
		for _, p := range h.Parts() {
			all = append(all, p)
		}
	}
	if all == nil {
		return []holding{h}
	}
	return all
}

// entered reports a hold. call is the time at which the call of Lock began. For a read-write lock, of has
// Read, and for a semaphore, of has Permits.
func (u user) entered(call time.Time, hold holding, of Op) {
	at := time.Now().UnixNano()
	for _, h := range parts(hold) {
		of.Lock, of.Owner, of.Kind, of.Token, of.Call, of.Return = h.Name(), u.owner, Acquire, h.Token(),
			call.UnixNano(), at
		u.report(Event{Op: of, Until: until(h)})
	}
}

// leave unlocks a hold. Before that, it reports the end of the hold of each lock. The end is now, or the
// deadline of a lost hold if the deadline has passed. lost has the locks whose loss was reported before. A
// loss ends all holds of a lock, so its outer holds are not reported again.
func (u user) leave(hold holding, of Op, lost map[string]bool) {
	now, all := time.Now(), parts(hold)
	deadline := hold.Deadline()
	for _, h := range all {
		if lost[h.Name()] {
			continue
		}
		at := now
		of.Kind = Release
		if h.Err() != nil {
			of.Kind, lost[h.Name()] = Lose, true
			if d := h.Deadline(); d.Before(now) {
				at = d
			}
		}
		of.Lock, of.Owner, of.Token, of.Call, of.Return = h.Name(), u.owner, h.Token(),
			at.UnixNano(), at.UnixNano()
		u.report(Event{Op: of})
	}
	ctx, cancel := context.WithTimeout(context.Background(), u.Lease)
	defer cancel()
	if err := hold.Unlock(ctx); len(all) == 1 && errors.Is(err, rlock.ErrLost) &&
		time.Now().Before(deadline) {
		u.report(Event{Op: Op{Kind: gone}})
	}
}
