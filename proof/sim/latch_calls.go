package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

// An awaiting is a call of Wait or CountDownAndWait that has not returned yet.
type awaiting struct {
	p     *process
	who   string
	since time.Time
	what  string // request that finds the run for which the call waits: look or count
}

// A joined is a party that considers its lease valid.
type joined struct {
	who, name string
	ids       []string // possible ids of the party; it has one of these
	p         *process
	ctx       context.Context
	since     time.Time
}

// joining counts the calls of Join of one process for one party.
type joining struct {
	p     *process
	under int       // calls that have not returned yet
	ended time.Time // time of the last return
}

// count makes a random call, or a few calls.
func (a *actor) count(l *latched) {
	la := latch.New(a.p.sessions[0], l.name, latch.WithLifetime(time.Minute+upTo(a.rnd, 4*time.Minute)))
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	bounded := a.rnd.IntN(4) == 0
	if bounded {
		t := time.AfterFunc(a.clock.Until(upTo(a.rnd, 40*time.Millisecond, 3*time.Second)), cancel)
		defer t.Stop()
	}
	switch r := a.rnd.IntN(100); {
	case r < 20:
		n := 1 + a.rnd.IntN(5)
		if a.rnd.IntN(4) == 0 {
			n *= 10 // so that the run takes longer than the lease of a party
		}
		a.flag(l, "set", ctx, func() (bool, error) { return la.TrySet(ctx, n) })
	case r < 24:
		a.flag(l, "delete", ctx, func() (bool, error) { return la.Delete(ctx) })
	case r < 45:
		a.down(l, ctx, la.CountDown)
	case r < 50:
		a.askCount(l, ctx, la)
	case r < 70:
		if a.mayWait(l, bounded) {
			a.wait(l, ctx, "look", la.Wait)
		}
	case r < 78:
		if a.mayWait(l, bounded) {
			a.down(l, ctx, func(ctx context.Context) error {
				return a.wait(l, ctx, "count", la.CountDownAndWait)
			})
		}
	case r < 85:
		a.counts.Add("races")
		a.flag(l, "set", ctx, func() (bool, error) { return la.TrySet(ctx, 1) })
		var both sync.WaitGroup
		both.Go(func() { a.down(l, bg, la.CountDown) })
		if a.mayWait(l, bounded) {
			a.wait(l, ctx, "look", la.Wait)
		}
		both.Wait()
	default:
		a.join(l, la)
	}
}

// mayWait reports whether another goroutine of the process may wait. If all of them waited without a limit,
// none would count.
func (a *actor) mayWait(l *latched, bounded bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for w := range l.awaited {
		if w.p == a.p {
			n++
		}
	}
	return bounded || n < 2
}

// begin and end are called before and after a call that takes effect at most once. The caller must hold
// world.mu.
func (l *latched) begin(p *process, what string) { l.tally(p.name, what).under++ }

func (l *latched) end(who string, p *process, what string, yes, unknown bool) {
	t := l.tally(p.name, what)
	t.under--
	if yes {
		t.yes++
	}
	if unknown {
		t.unknown++
	}
	if t.yes > t.done || t.done > t.yes+t.unknown+t.under {
		l.doubted("%s: %d calls to %s took effect, and the calls of the process were %+v",
			who, t.done, what, *t)
	}
}

// excused reports whether faults, a canceled context or the end of the process explain an error. The caller
// must hold a.mu.
func (a *actor) excused(err error, ctx context.Context, since time.Time) bool {
	switch {
	case a.p.over():
		return true
	case errors.Is(err, context.Canceled):
		a.counts.Add("not waited")
		return ctx.Err() != nil
	case errors.Is(err, rlock.ErrClosed):
		return false
	}
	a.counts.Add("failed")
	return !a.well() || !since.After(a.quiet)
}

// flag calls TrySet or Delete.
func (a *actor) flag(l *latched, what string, ctx context.Context, do func() (bool, error)) {
	a.mu.Lock()
	l.begin(a.p, what)
	a.log("%s: calls %s", a.name, what)
	since := time.Now()
	a.mu.Unlock()
	yes, err := do()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log("%s: %s: %v, %v", a.name, what, yes, err)
	l.end(a.name, a.p, what, yes, err != nil)
	running := what == "set" // whether there is a run when the call does nothing
	switch {
	case err != nil:
		if yes || !a.excused(err, ctx, since) {
			a.fail("%s: %s: %v, %v", a.name, what, yes, err)
		}
	case !yes && !l.was(since, func(m moment) bool { return (m.run != "") == running }):
		a.fail("%s: %s did nothing, and it should have", a.name, what)
	}
}

// down calls CountDown or CountDownAndWait.
func (a *actor) down(l *latched, ctx context.Context, do func(context.Context) error) {
	a.mu.Lock()
	l.begin(a.p, "count")
	a.log("%s: counts down", a.name)
	since := time.Now()
	a.mu.Unlock()
	err := do(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log("%s: counted down: %v", a.name, err)
	counted := err == nil || errors.Is(err, latch.ErrDeleted) || errors.Is(err, latch.ErrGone) ||
		errors.Is(err, latch.ErrPartyDied)
	l.end(a.name, a.p, "count", counted, !counted)
	if !counted && !a.excused(err, ctx, since) {
		a.fail("%s: CountDown: %v", a.name, err)
	}
}

func (a *actor) askCount(l *latched, ctx context.Context, la *latch.Latch) {
	since := time.Now()
	n, err := la.Count(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log("%s: Count: %d, %v", a.name, n, err)
	if err != nil && !a.excused(err, ctx, since) ||
		err == nil && !l.was(since, func(m moment) bool { return m.n == int64(n) }) {
		a.fail("%s: Count: %d, %v", a.name, n, err)
	}
}

// wait waits, and checks the reason for which the wait has ended.
func (a *actor) wait(l *latched, ctx context.Context, what string, do func(context.Context) error) error {
	w := &awaiting{a.p, a.name, time.Now(), what}
	a.mu.Lock()
	l.awaited[w] = struct{}{}
	a.log("%s: waits", a.name)
	a.mu.Unlock()
	err := do(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(l.awaited, w)
	a.log("%s: has waited: %v", a.name, err)
	runs := l.findings(a.p, w.since, what)
	ended := func(how byte) bool {
		return slices.ContainsFunc(runs, func(f finding) bool {
			return how == 'Z' && f.run == "" || f.run != "" && l.runs[f.run].how[how]
		})
	}
	var died *latch.PartyDiedError
	ok := false
	switch {
	case err == nil:
		a.counts.Add("entries")
		a.counts.Add("waits")
		ok = ended('Z')
	case errors.Is(err, latch.ErrDeleted):
		a.counts.Add("waits ended by Delete")
		ok = ended('D')
	case errors.Is(err, latch.ErrGone):
		a.counts.Add("waits for what is gone")
		ok = !l.on[0].forgot.IsZero()
	case errors.As(err, &died):
		a.counts.Add("waits ended by a dead party")
		ok = slices.ContainsFunc(l.findings(a.p, w.since, "death"), func(d finding) bool {
			return d.name == died.Party && slices.ContainsFunc(runs, func(f finding) bool {
				return f.run == d.run
			})
		})
	default:
		ok = a.excused(err, ctx, w.since)
	}
	if !ok {
		a.fail("%s: has waited since %v: %v, and it was not so", a.name, w.since.Sub(a.start), err)
	}
	return err
}

// join joins as a party, works, and then counts down or gives up.
func (a *actor) join(l *latched, la *latch.Latch) {
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	stop := func() bool { return true }
	if a.rnd.IntN(4) == 0 { // only during the call, because ctx is also the parent of the party's context
		stop = time.AfterFunc(a.clock.Until(upTo(a.rnd, 40*time.Millisecond)), cancel).Stop
	}
	name := fmt.Sprint("p", a.rnd.IntN(4))
	since := time.Now()
	a.mu.Lock()
	j := l.joining[a.p.name+" "+name]
	if j == nil {
		j = &joining{p: a.p}
		l.joining[a.p.name+" "+name] = j
	}
	if j.under > 0 { // with two calls at once, it would not be known which of them has joined
		a.mu.Unlock()
		return
	}
	j.under++
	a.log("%s: joins as %s", a.name, name)
	a.mu.Unlock()

	work, party, err := la.Join(ctx, name)

	stop()
	a.mu.Lock()
	a.log("%s: joined as %s: %v", a.name, name, err)
	j.under--
	j.ended = time.Now()
	outcomes := func(what string) (ids []string) {
		for _, f := range l.findings(a.p, since, what) {
			if f.name == name {
				ids = append(ids, f.id)
			}
		}
		return ids
	}
	if err != nil {
		ok := false
		switch {
		case errors.Is(err, latch.ErrPartyExists):
			ok = outcomes("T") != nil
		case errors.Is(err, latch.ErrNoCount):
			ok = outcomes("F") != nil
		case errors.Is(err, latch.ErrPartyDied):
			// The process may have been stopped after the reply, until the lease had ended.
			ok = outcomes("X") != nil || outcomes("J") != nil && time.Since(since) >= protocol.Valid(lease)
		default:
			ok = a.excused(err, ctx, since)
		}
		if !ok {
			a.fail("%s: Join: %v, and it was not so", a.name, err)
		}
		a.mu.Unlock()
		return
	}
	of := &joined{a.name, name, outcomes("J"), a.p, work, time.Now()}
	if of.ids == nil {
		a.fail("%s: has joined as %s, and Redis did not say so", a.name, name)
	}
	for _, id := range of.ids {
		l.members[id].returned = true
	}
	l.joined[of] = struct{}{}
	l.believe(l.on[0].tick())
	a.mu.Unlock()
	a.pause(work)
	if a.p.crashed.Load() {
		return
	}
	for range 1 + a.rnd.IntN(5) {
		if a.rnd.IntN(4) == 0 {
			break
		}
		if err := a.arrive(l, of, party); err == nil || a.p.over() {
			break
		}
		a.sleep(upTo(a.rnd, 300*time.Millisecond))
	}
	a.abandon(l, of, party)
}

// arrive counts down as a party.
func (a *actor) arrive(l *latched, of *joined, party *latch.Party) error {
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	if a.rnd.IntN(4) == 0 {
		defer time.AfterFunc(a.clock.Until(upTo(a.rnd, 40*time.Millisecond)), cancel).Stop()
	}
	since := time.Now()
	a.mu.Lock()
	l.believe(l.on[0].tick())
	delete(l.joined, of) // the lease may end at any time now
	a.log("%s: counts as %s", a.name, of.name)
	a.mu.Unlock()
	err := party.CountDown(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log("%s: counted as %s: %v", a.name, of.name, err)
	forgot := !l.on[0].forgot.IsZero()
	is := func(so func(*member) bool) bool {
		return forgot || slices.ContainsFunc(of.ids, func(id string) bool { return so(l.members[id]) })
	}
	ok := false
	switch {
	case err == nil:
		ok = is(func(m *member) bool { return m.counted || l.runs[m.run].how['Z'] })
		if of.ctx.Err() == nil {
			a.fail("%s: has counted as %s, and its context goes on", a.name, of.name)
		}
	case errors.Is(err, latch.ErrDeleted):
		ok = is(func(m *member) bool { return l.runs[m.run].how['D'] })
	case errors.Is(err, latch.ErrGone):
		ok = forgot
	case errors.Is(err, latch.ErrPartyDied):
		now := l.on[0].tick()
		ok = is(func(m *member) bool { return m.died && !m.counted || l.state.leases[of.name].till <= now })
	default:
		ok = a.excused(err, ctx, since)
	}
	if !ok {
		a.fail("%s: CountDown as %s: %v, and it was not so", a.name, of.name, err)
	}
	return err
}

// abandon gives a party up, unless it has counted down.
func (a *actor) abandon(l *latched, of *joined, party *latch.Party) {
	if a.p.crashed.Load() {
		return
	}
	since := time.Now()
	a.mu.Lock()
	delete(l.joined, of)
	a.log("%s: gives %s up", a.name, of.name)
	a.mu.Unlock()
	err := party.Abandon(bg)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log("%s: gave %s up: %v", a.name, of.name, err)
	if of.ctx.Err() == nil {
		a.fail("%s: has given %s up, and its context goes on", a.name, of.name)
	}
	// A lease that has ended continues if the clock is set back to a time before its end.
	over := l.on[0].tick() + l.on[0].setSince(since).Microseconds()
	if p := l.state.leases[of.name]; err == nil && slices.Contains(of.ids, p.id) && p.till > over &&
		l.on[0].forgot.IsZero() {
		a.fail("%s: has given %s up, and Redis still has its lease", a.name, of.name)
	}
	if err != nil && !a.excused(err, bg, since) {
		a.fail("%s: Abandon: %v", a.name, err)
	}
}

// believe checks that Redis has the lease of each party that considers its lease valid.
func (l *latched) believe(now int64) {
	w := l.w
	for j := range l.joined {
		if j.ctx.Err() != nil {
			cause := context.Cause(j.ctx)
			w.log("%s: %s is lost: %v", j.who, j.name, cause)
			if w.well() && j.since.After(w.quiet) && errors.Is(cause, latch.ErrPartyDied) && !j.p.over() {
				w.fail("%s has lost the lease of %s, and all is well", j.who, j.name)
			}
			delete(l.joined, j)
			continue
		}
		var void time.Time // time since which the lease need not be in Redis
		if forgot := l.on[0].forgot; forgot.After(j.since) {
			void = forgot
		}
		has := false
		for _, id := range j.ids {
			p := l.state.leases[j.name]
			has = has || p.id == id && p.till > now
			if r := l.runs[l.members[id].run]; r != nil {
				void = later(void, r.over)
			}
		}
		switch {
		case has:
		case void.IsZero():
			w.fail("%s believes to have the lease of %s, and Redis has %v", j.who, j.name, l.state)
		case time.Since(void) > longest:
			w.fail("%s believes to have the lease of %s, for %v since its run was over",
				j.who, j.name, time.Since(void))
		}
	}
}

// due checks that a wait returns if its run has ended or a party has died. It also checks that a lease is
// released if its process did not want it.
func (l *latched) due() {
	w, now := l.w, time.Now()
	clock := l.on[0].tick()
	l.believe(clock)
	gap, from := w.gap, w.quiet
	if w.deaf { // a session notices a lost message only when its subscription is silent for long
		gap, from = w.lossGap, w.quiet.Add(lateBy-grace)
	}
	for a := range l.awaited {
		if a.p.over() {
			continue
		}
		runs := l.runsOf(a)
		if len(runs) == 0 && now.Sub(later(a.since, w.quiet)) > w.gap {
			w.fail("%s has waited since %v, and not asked for what", a.who, a.since.Sub(w.start))
		}
		var last time.Time
		for _, f := range runs {
			at := l.overSince(f, clock)
			if at.IsZero() {
				last = now // the run has not ended
				break
			}
			last = later(last, at)
		}
		if late := now.Sub(later(later(last, from), a.since)); len(runs) > 0 && late > gap {
			w.fail("%s has waited since %v, for %v longer than it should", a.who, a.since.Sub(w.start), late)
		}
	}
	for name, p := range l.state.leases {
		m := l.members[p.id]
		j := l.joining[m.from+" "+name]
		if !m.returned && p.till > clock && j.under == 0 && !j.p.over() &&
			now.Sub(later(later(m.at, j.ended), w.quiet)) > w.gap {
			w.fail("%s has the lease of %s, which its process did not want", short(p.id), name)
		}
	}
}

// crashOne lets the process of a party crash, after all other faults have ended. It reports whether there was
// such a process.
func (l *latched) crashOne() (crashed bool) {
	for j := range l.joined {
		if !j.p.over() {
			l.w.log("%s crashes, and all is well", j.p.name)
			l.w.counts.Add("crashes")
			j.p.crash()
			return true
		}
	}
	return false
}

// runsOf returns findings with the runs for which a call may be waiting.
func (l *latched) runsOf(a *awaiting) []finding {
	all := l.findings(a.p, a.since, a.what)
	within := 5 * time.Second // with faults, a request may take this long
	if l.w.well() && a.since.After(l.w.quiet) {
		within = 2*l.w.latency + 100*time.Millisecond
	}
	early := slices.DeleteFunc(slices.Clone(all), func(f finding) bool { return f.at.Sub(a.since) > within })
	if len(early) > 0 {
		return early
	}
	return all
}

// overSince returns the time since which the run of f is no reason to wait any more. It returns zero if the
// run still is a reason.
func (l *latched) overSince(f finding, clock int64) time.Time {
	r := l.runs[f.run]
	switch {
	case r == nil:
		return f.at
	case !r.over.IsZero():
		return r.over
	}
	if ends := l.state.ends(); ends != 0 && ends <= clock {
		return time.Now().Add(time.Duration(ends-clock) * time.Microsecond)
	}
	return time.Time{}
}
