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

// Assignment is what a process is to do, the first line of its stdin. The end of stdin is the order to stop.
type Assignment struct {
	Number     int
	Seed       uint64
	Redis      []string // URLs of the servers
	Prefix     string
	Kinds      []string // of locks: some of those that the function Kinds has
	Names      int      // locks of each kind
	Lease      time.Duration
	Linger     time.Duration // above 0: locks may stay where they are used, and processes use them by turns
	Goroutines int
}

// What is no Op to a model.
const (
	failed  Kind = "failed"  // an acquisition, without success
	renewed Kind = "renewed" // a hold whose deadline may have moved
	gone    Kind = "gone"    // a hold that Redis did not know, before its deadline
	counts  Kind = "counts"  // a Count that is about to be sent
)

// What may not be, beside what a history shows.
const (
	Stuck Kind = "stuck" // nothing failed any more, and a lock was not to be had
	Left  Kind = "left"  // a goroutine, a key or a subscription was left behind
	Died  Kind = "died"  // a process ended by itself
)

// Event is a line of a process's stdout.
type Event struct {
	Op
	Until int64  `json:",omitempty"` // its deadline, of what holds
	Error string `json:",omitempty"`
}

const (
	// patience is for what must happen once nothing fails any more.
	patience = 30 * time.Second
	// latchLifetime is so long that no waiter looks within patience at a latch of which it was told nothing.
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

// visit is one way to use one lock: to get it, to stay a while, and to leave it. An error says that it was
// not to be had.
type visit func(u user, ctx context.Context) error

// Work is the life of a process that Stage starts. It uses the locks until it is told to stop, then each once
// more, and reports if it does not get one, or if a goroutine is left of it all.
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
	// It may end before what was handed over does, or long after that.
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
		// What cannot be told to a server is left to its lease.
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
	_ = c.reports.Encode(e) // its failure means that the parent is gone
}

// use is one goroutine, which is one owner.
func (c *client) use(goroutine int) {
	rnd := rand.New(rand.NewPCG(c.Seed, uint64(c.Number)<<16+uint64(goroutine)))
	u := user{c, fmt.Sprintf("%d.%d", c.Number, goroutine), rnd}
	for u.pause(4 * time.Millisecond) {
		if c.Linger > 0 && !c.hasTurn() && rnd.IntN(400) > 0 {
			continue
		}
		wait := patience
		if rnd.IntN(10) == 0 {
			wait = time.Duration(rnd.Int64N(int64(20 * time.Millisecond))) // gives up, perhaps in mid-request
		}
		if u.visit(c.visits[rnd.IntN(len(c.visits))], wait) != nil {
			c.report(Event{Op: Op{Kind: failed}})
		}
	}
	for _, v := range c.visits { // nothing fails any more
		if err := u.getIn(v, patience); err != nil {
			c.report(Event{Op: Op{Kind: Stuck}, Error: err.Error()})
		}
	}
}

// hasTurn reports whether this process is the one of three that uses the locks now.
func (c *client) hasTurn() bool {
	return time.Now().UnixMilli()/500%3 == int64(c.Number%3)
}

// user is one owner.
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

// visit makes a visit, which may wait so long for the lock.
func (u user) visit(v visit, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return v(u, ctx)
}

// getIn tries again until patience is over, as a program would: servers on a busy machine may all be too slow
// once.
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

// holding is what a user has: an rlock.Hold, or what looks like one.
type holding interface {
	Name() string
	Token() int64
	Deadline() time.Time
	Err() error
	Unlock(context.Context) error
}

// stay stays, mostly for a moment, sometimes for longer than a renewal takes.
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

// until is the hold's deadline on the clock that all processes share.
func until(h holding) int64 {
	now := time.Now()
	return now.Add(h.Deadline().Sub(now)).UnixNano()
}

// parts are the holds of single locks that a hold is made of.
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

// entered reports that it got a hold since call. of is what the hold is of, for a read-write lock and a
// semaphore.
func (u user) entered(call time.Time, hold holding, of Op) {
	at := time.Now().UnixNano()
	for _, h := range parts(hold) {
		of.Lock, of.Owner, of.Kind, of.Token, of.Call, of.Return = h.Name(), u.owner, Acquire, h.Token(),
			call.UnixNano(), at
		u.report(Event{Op: of, Until: until(h)})
	}
}

// leave unlocks. Before that, it reports until when it held each lock: until now, or until the deadline of a
// lost one, if that was earlier. lost are the locks whose loss it has reported, which ends all holds at once.
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
