package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/child"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// Stage configures a run of processes that use locks among faults.
type Stage struct {
	Assignment                     // assignment of each process, except for Number and Redis
	T          testing.TB          // test that the proxies belong to
	URLs       []string            // URLs of the servers, which begin with redis://
	Servers    []*testredis.Server // the same servers; nil if Faults has no faults of servers
	Command    func() *exec.Cmd    // returns the command of a process that calls Work
	Processes  int                 // number of processes at one time
	Faults     []Fault             // faults to cause, in rounds; each round has all faults in random order
	Pace       time.Duration       // average time from fault to fault
	// Alone gives each process a prefix of its own, so that the processes do not exclude each other. Then the
	// judges must find overlaps.
	Alone bool
}

// Record has the events and faults of a run.
type Record struct {
	Ops    []Op
	Got    int           // number of acquisitions, including nested ones, and of sets and waits of latches
	Failed int           // number of acquisitions that ended without the lock
	Gone   int           // number of holds that Redis did not know at an Unlock before their deadline
	Faults map[Fault]int // number of faults of each kind
	Last   Fault
	Wrong  []Event // events of the kinds Stuck, Left and Died
	Begun  time.Time
}

// Count returns the number of faults.
func (r *Record) Count() (n int) {
	for _, f := range r.Faults {
		n += f
	}
	return n
}

// play is a run of a stage, used by one goroutine.
type play struct {
	*Stage
	Record
	rnd     *rand.Rand
	proxies []*faultproxy.Proxy
	via     []string // URLs through the proxies
	heals   []heal
	due     []Fault // faults that are left in the present round
	news    chan child.News[Event]
	actors  map[int]*actor
	last    int // number of the latest actor
	names   map[string]string
	stopped bool
}

// actor is a process.
type actor struct {
	*child.Child
	killed int64                 // time right before the kill signal was sent; 0: no signal was sent
	inside map[[2]string]*belief // beliefs by lock and owner
	counts map[string]Op         // count downs in flight, by owner
}

// belief is the state of an owner's holds of a lock, as the owner's events show it.
type belief struct {
	holds int
	last  Op    // latest acquisition
	until int64 // the latest deadline
}

const (
	tick = 20 * time.Millisecond
	// backlog is the number of events that may queue up while a server restarts.
	backlog = 1 << 14
)

// Run starts the processes and causes faults until enough returns true or ctx ends. It calls enough up to 50
// times a second. Then it ends the faults, lets each process acquire each lock once more, and looks for
// leftovers on the servers. An error does not mean that a lock has failed, but that the run proves nothing.
func (s *Stage) Run(ctx context.Context, enough func(*Record) bool) (*Record, error) {
	p := &play{Stage: s, rnd: rand.New(rand.NewPCG(s.Seed, 0)), news: make(chan child.News[Event], backlog),
		actors: map[int]*actor{}, names: map[string]string{}}
	p.Record = Record{Faults: map[Fault]int{}, Begun: time.Now()}
	for _, url := range s.URLs {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		proxy := faultproxy.New(s.T, o.Addr)
		p.proxies = append(p.proxies, proxy)
		p.via = append(p.via, strings.Replace(url, o.Addr, proxy.Addr(), 1))
	}
	defer func() {
		for _, a := range p.actors {
			a.Kill()
		}
		for len(p.actors) > 0 {
			p.take(<-p.news)
		}
	}()
	if err := p.act(ctx, enough); err != nil {
		return nil, err
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	// The wall clock and the monotonic clock differ only if the wall clock was set.
	now := time.Now()
	took := now.Sub(p.Begun)
	if set := now.Round(0).Sub(p.Begun.Round(0)) - took; set.Abs() > 5*time.Millisecond+took/1000 {
		return nil, fmt.Errorf("this machine's clock was set by %v meanwhile: nothing is proved", set)
	}
	return &p.Record, ctx.Err()
}

// act starts processes and causes faults until enough returns true or ctx ends.
func (p *play) act(ctx context.Context, enough func(*Record) bool) error {
	for range p.Processes {
		if err := p.start(); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	next := time.Now().Add(p.Pace)
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-p.news:
			p.take(n)
			continue
		case <-ticker.C:
		}
		now := time.Now()
		p.heal(now)
		for len(p.actors) < p.Processes { // replaces killed processes
			if err := p.start(); err != nil {
				return err
			}
		}
		if len(p.Stage.Faults) > 0 && now.After(next) {
			next = now.Add(time.Duration(p.rnd.Int64N(2 * int64(p.Pace))))
			p.disturb()
		}
		for _, proxy := range p.proxies {
			proxy.Reset() // drops its record of requests, which would grow without bound
		}
		if enough(&p.Record) {
			return nil
		}
	}
}

func (p *play) start() error {
	p.last++
	a := p.Assignment
	a.Number, a.Redis = p.last, p.via
	if p.Alone {
		a.Prefix += fmt.Sprint(":", p.last)
	}
	cmd := p.Command()
	cmd.SysProcAttr = testredis.EndWithParent()
	c, err := child.Start(cmd, p.last, a, p.news)
	if err != nil {
		return err
	}
	p.actors[p.last] = &actor{Child: c, inside: map[[2]string]*belief{}, counts: map[string]Op{}}
	return nil
}

// finish ends the faults and the processes, and looks for leftovers.
func (p *play) finish() error {
	p.stopped = true
	p.heal(time.Now().Add(time.Hour))
	for _, a := range p.actors {
		_ = a.Orders.Close()
	}
	late := time.After(3 * patience)
	for len(p.actors) > 0 {
		select {
		case n := <-p.news:
			p.take(n)
		case <-late:
			p.wrong(Stuck, "%d processes do not end", len(p.actors))
			return nil
		}
	}
	for i, url := range p.URLs {
		if err := p.leftovers(url); err != nil {
			return fmt.Errorf("server %d: %w", i+1, err)
		}
	}
	return nil
}

func (p *play) wrong(kind Kind, format string, args ...any) {
	p.Wrong = append(p.Wrong, Event{Op: Op{Kind: kind}, Error: fmt.Sprintf(format, args...)})
}

// take records an event, an error or the end of a process.
func (p *play) take(n child.News[Event]) {
	a, e := p.actors[n.Child], n.Event
	switch {
	case n.Ended:
		delete(p.actors, n.Child)
		_ = a.Orders.Close()
		if a.killed == 0 && (n.Err != nil || !p.stopped || len(a.inside) > 0) {
			p.wrong(Died, "process %d ended (%v), with %d locks", n.Child, n.Err, len(a.inside))
		}
		// A process relied on its holds until it was killed, or until their deadlines, if it was frozen
		// before that.
		for k, b := range a.inside {
			at := max(min(a.killed, b.until), b.last.Return)
			p.Ops = append(p.Ops, Op{Lock: k[0], Owner: k[1], Kind: Lose, Token: b.last.Token,
				Call: at, Return: at})
		}
		for _, op := range a.counts { // count downs that may have taken effect
			op.Kind, op.Return = Count, time.Now().Add(late(p.Lease)).UnixNano()
			p.Ops = append(p.Ops, op)
		}
	case n.Err != nil:
		if a.killed == 0 { // a killed process may have written half a line
			p.wrong(Died, "process %d: %v", n.Child, n.Err)
		}
	case e.Kind == failed:
		p.Failed++
	case e.Kind == gone:
		p.Gone++
	case e.Error != "":
		p.wrong(e.Kind, "process %d: %s", n.Child, e.Error)
	default:
		p.see(a, e)
	}
}

// see records an event of a lock.
func (p *play) see(a *actor, e Event) {
	e.Lock, e.Owner = p.name(e.Lock), p.name(e.Owner)
	switch e.Kind {
	case counts:
		a.counts[e.Owner] = e.Op
		return
	case Count:
		delete(a.counts, e.Owner)
		p.Ops = append(p.Ops, e.Op)
		return
	case Set, Wait:
		p.Got++
		p.Ops = append(p.Ops, e.Op)
		return
	}
	k := [2]string{e.Lock, e.Owner}
	b := a.inside[k]
	if b == nil {
		b = &belief{}
		a.inside[k] = b
	}
	b.until = max(b.until, e.Until, e.Call) // the owner still relied on the lock at e.Call
	switch e.Kind {
	case renewed:
		return
	case Acquire:
		p.Got++
		b.holds++
		b.last = e.Op
	case Release:
		b.holds--
	case Lose:
		b.holds = 0
	}
	if b.holds <= 0 {
		delete(a.inside, k)
	}
	p.Ops = append(p.Ops, e.Op)
}

// name returns the same copy of equal strings, because there are millions of events.
func (p *play) name(s string) string {
	if n, ok := p.names[s]; ok {
		return n
	}
	p.names[s] = s
	return s
}

// leftovers reports keys and subscriptions that are left on a server. When all leases have expired, only keys
// for which memory returns true may remain, and each of them must expire.
func (p *play) leftovers(url string) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(o)
	defer func() { _ = rdb.Close() }()
	ctx := context.Background()
	for deadline := time.Now().Add(patience); ; time.Sleep(tick) {
		var left []string
		keys := rdb.Scan(ctx, 0, p.Prefix+":*", 1000).Iterator()
		for keys.Next(ctx) {
			if key := keys.Val(); !memory(ctx, rdb, key) || rdb.PTTL(ctx, key).Val() == -1 {
				left = append(left, key)
			}
		}
		channels, err := rdb.PubSubChannels(ctx, p.Prefix+":*").Result()
		if err := errors.Join(keys.Err(), err); err != nil {
			return err
		}
		if left = append(left, channels...); len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			p.wrong(Left, "on %s: %q", o.Addr, left)
			return nil
		}
	}
}

// memory reports whether a key may stay until it expires. Such a key is the hash of a lock that nobody holds
// or waits for, or the hash of a latch, which remembers its last run.
func memory(ctx context.Context, rdb *redis.Client, key string) bool {
	if strings.Contains(key, ":l:{"+Latch) {
		return true
	}
	lock, err := rdb.HMGet(ctx, key, "lives", "owner", "ends", "queued").Result()
	if err != nil || lock[0] == nil {
		return false
	}
	now := rdb.Time(ctx).Val().UnixMicro()
	ended := func(field any) bool {
		text, _ := field.(string)
		at, _ := strconv.ParseInt(text, 10, 64)
		return at <= now
	}
	return (lock[1] == nil || ended(lock[2])) && ended(lock[3])
}

// pick returns one of the processes that were not killed, at random, or nil.
func (p *play) pick() *actor {
	var living []*actor
	for _, a := range p.actors {
		if a.killed == 0 {
			living = append(living, a)
		}
	}
	if len(living) == 0 {
		return nil
	}
	return living[p.rnd.IntN(len(living))]
}
