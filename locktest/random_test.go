package locktest_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

var (
	seeds = flag.Int("seeds", 20, "how many random programs to run")
	from  = flag.Int("from", 0, "the first of them")
)

func TestRandomProgramsSeeNoDifferenceToTheLibrary(t *testing.T) {
	for _, kind := range []string{"reentrant", "fair"} {
		t.Run(kind, func(t *testing.T) {
			for seed := *from; seed < *from+*seeds; seed++ {
				run := func(on string) (saw string) {
					testlock.InFakeTime(t, func(t *testing.T) {
						p := &program{t: t, w: kinds[on](t), fair: kind == "fair",
							rand: rand.New(rand.NewPCG(uint64(seed), 0))}
						saw = p.run()
					})
					return saw
				}
				a, b := run("locktest"), run(kind)
				if a == b {
					continue
				}
				n := 0
				for a[n] == b[n] {
					n++
				}
				n = strings.LastIndexByte(a[:n], '\n') + 1
				line := func(s string) string { return s[:strings.IndexByte(s, '\n')] }
				t.Fatalf("-from %d: up to here they are the same:\n%slocktest: %s\nlibrary:  %s",
					seed, a[:n], line(a[n:]), line(b[n:]))
			}
		})
	}
}

// program does what comes by chance, and writes down what it sees.
type program struct {
	t    testing.TB
	w    world
	fair bool // keep to what a fair lock promises
	rand *rand.Rand
	log  strings.Builder

	ctxs    []context.Context
	entries []entry
	waits   []*wait
}

// entry is a hold that the program got.
type entry struct {
	name string
	ctx  context.Context
	hold *rlock.Hold
}

// wait is a Lock under way.
type wait struct {
	number int
	lock   string
	entry
	err    error
	cancel context.CancelFunc
	done   chan struct{}
}

var programNames = []string{"x", "y"}

func (p *program) run() string {
	p.ctxs = []context.Context{bg, rlock.WithOwner(bg), rlock.WithOwner(bg)}
	free := map[string]func(){}
	for step := range 30 {
		name := programNames[p.rand.IntN(2)]
		what, at, ctx := p.rand.IntN(20), p.rand.Int(), p.ctxs[p.rand.IntN(len(p.ctxs))]
		var options []rlock.Option
		lease := []time.Duration{0, 0, 0, 20 * time.Second, time.Minute}[p.rand.IntN(5)]
		if lease > 0 {
			options = append(options, rlock.WithLease(lease))
		}
		fmt.Fprintf(&p.log, "%d: ", step)
		switch {
		case what < 6:
			fmt.Fprintf(&p.log, "TryLock %s with %v", name, lease)
			ctx, hold, err := p.w.new(name).TryLock(ctx, options...)
			p.got(entry{name, ctx, hold}, err)
		case what < 10:
			fmt.Fprintf(&p.log, "Lock %s with %v", name, lease)
			ctx, cancel := context.WithCancel(ctx)
			p.t.Cleanup(cancel)
			wt := &wait{number: step, lock: name, cancel: cancel, done: make(chan struct{})}
			p.waits = append(p.waits, wt)
			go func() {
				defer close(wt.done)
				c, hold, err := p.w.new(name).Lock(ctx, options...)
				wt.entry, wt.err = entry{name, c, hold}, err
			}()
		case what < 11 && len(p.waits) > 0:
			i := at % len(p.waits)
			fmt.Fprintf(&p.log, "cancel the Lock of %d", p.waits[i].number)
			p.waits[i].cancel()
		case what < 14 && len(p.entries) > 0:
			i := at % len(p.entries)
			fmt.Fprintf(&p.log, "Unlock %d: %s", i, class(p.entries[i].hold.Unlock(bg)))
		case what < 15 && len(p.entries) > 0:
			i := at % len(p.entries)
			fmt.Fprintf(&p.log, "Extend %d: %s", i, class(p.entries[i].hold.Extend(bg, time.Minute)))
		case what < 17 && free[name] != nil:
			fmt.Fprintf(&p.log, "they free %s", name)
			free[name]()
			free[name] = nil
		case what < 18 && !p.w.inspect(p.t, name).Held:
			fmt.Fprintf(&p.log, "they take %s", name)
			free[name] = p.w.occupy(p.t, name)
		case what < 19 && p.held(name) != nil && !(p.fair && p.awaited(name)):
			// Who waits for a lost one asks anew.
			fmt.Fprintf(&p.log, "%s is lost", name)
			p.w.lose(p.t, p.held(name))
		default:
			fmt.Fprintf(&p.log, "time passes")
			time.Sleep(11 * time.Second) // no lease ends then
		}
		time.Sleep(settled)
		p.look()
	}
	for _, wt := range p.waits {
		wt.cancel()
	}
	time.Sleep(settled)
	p.look()
	for _, f := range free {
		if f != nil {
			f()
		}
	}
	for i, e := range p.entries {
		fmt.Fprintf(&p.log, "at last, Unlock %d: %s\n", i, class(e.hold.Unlock(bg)))
	}
	return p.log.String()
}

func (p *program) got(e entry, err error) {
	fmt.Fprintf(&p.log, " -> %s", class(err))
	if err != nil {
		return
	}
	testlock.Keep(p.t, e.hold)
	for i, other := range p.entries { // tokens are equal where holds share one, and else grow
		if other.name == e.name && other.hold.Token() >= e.hold.Token() {
			fmt.Fprintf(&p.log, " token of %d: %v", i, other.hold.Token() == e.hold.Token())
			break
		}
	}
	p.entries = append(p.entries, e)
	p.ctxs = append(p.ctxs, e.ctx, context.WithoutCancel(e.ctx))
}

// held is a live hold of the lock, if there is one.
func (p *program) held(name string) *rlock.Hold {
	for _, e := range p.entries {
		if e.name == name && e.hold.Err() == nil {
			return e.hold
		}
	}
	return nil
}

// awaited: some Lock of that name is under way.
func (p *program) awaited(name string) bool {
	return slices.ContainsFunc(p.waits, func(wt *wait) bool { return wt.lock == name })
}

// look writes down what has become of everything.
func (p *program) look() {
	var under []*wait
	for _, wt := range p.waits {
		select {
		case <-wt.done:
			fmt.Fprintf(&p.log, ", the Lock of %d", wt.number)
			p.got(wt.entry, wt.err)
		default:
			under = append(under, wt)
		}
	}
	p.waits = under
	for i, e := range p.entries {
		fmt.Fprintf(&p.log, " [%d %s %s]", i, class(e.hold.Err()), class(context.Cause(e.ctx)))
	}
	for _, name := range programNames {
		st := p.w.inspect(p.t, name)
		fmt.Fprintf(&p.log, " %s held %v count %d", name, st.Held, st.Count)
	}
	p.log.WriteByte('\n')
}
