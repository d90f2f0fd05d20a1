package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/rlock"
)

// leads lets a Leadership be used as a claim.
type leads struct{ *election.Leadership }

// Deadline returns the present time, because the deadline of a leadership is not known.
func (leads) Deadline() time.Time { return time.Now() }

// campaign campaigns, and leads for a while if it becomes the leader.
func (a *actor) campaign(l *elected) {
	e := election.New(a.p.sessions[0], l.name)
	if a.rnd.IntN(4) == 0 {
		a.lookAt(l, e)
		return
	}
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	h := way{}
	if a.rnd.IntN(3) == 0 {
		h.canceled = 1 + upTo(a.rnd, 50*time.Millisecond, 3*time.Second)
		t := time.AfterFunc(a.clock.Until(h.canceled), cancel)
		defer t.Stop()
	}
	q := &lockCall{a.p, []*lock{l.lock}, 0, time.Now(), map[string]int{}}
	a.mu.Lock()
	t := &term{name: fmt.Sprint(a.name, "/", len(l.terms))}
	l.terms[t.name] = t
	value := t.next()
	a.log("%s: campaigns with %s, %s", a.name, value, h)
	a.asking[q] = struct{}{}
	a.mu.Unlock()

	ctx, led, err := e.Campaign(ctx, value)

	a.mu.Lock()
	a.progress()
	delete(a.asking, q)
	if err != nil {
		a.log("%s: %v", a.name, err)
		a.refused(q, h, nil, err)
		if led != nil {
			a.fail("%s: Campaign: %v, and it leads", a.name, err)
		}
		a.mu.Unlock()
		return
	}
	a.counts.Add("entries")
	attempt := l.owner[led.Token()]
	t.part = &held{who: a.name, ctx: ctx, hold: leads{led}, token: led.Token(), attempt: attempt,
		grant: l.grantOf(attempt), p: a.p, since: time.Now()}
	a.log("%s: leads under %d", a.name, t.part.token)
	if attempt == "" || !t.part.void() && t.part.grant.token != t.part.token {
		a.fail("%s: leads under %d, which was not granted", a.name, t.part.token)
	}
	l.leads[attempt] = t.part
	l.entry(t.part, nil)
	a.mu.Unlock()
	for range a.rnd.IntN(4) {
		a.pause(ctx)
		if !a.p.crashed.Load() {
			a.proclaim(l, e, t, ctx, led)
		}
	}
	a.pause(ctx)
	a.resign(l, t, ctx, led)
}

// pause works for a while, as a leader or as a party of a latch.
func (a *actor) pause(ctx context.Context) {
	d := upTo(a.rnd, 20*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond)
	if a.rnd.IntN(25) == 0 {
		d *= 10 // often longer than the time between two renewals
	}
	t := time.NewTimer(a.clock.Until(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	a.thawed(a.p)
}

// proclaim changes the value, by Proclaim or by a nested Campaign. Sometimes it makes two such calls at the
// same time.
func (a *actor) proclaim(
	l *elected, e *election.Election, t *term, led context.Context, lead *election.Leadership,
) {
	var both sync.WaitGroup
	for range 1 + a.rnd.IntN(4)/3 {
		ctx, cancel := context.WithCancel(led)
		short := a.rnd.IntN(4) == 0
		if short {
			ctx, cancel = context.WithTimeout(led, a.clock.Until(upTo(a.rnd, 40*time.Millisecond)))
		}
		below := a.rnd.IntN(3) == 0
		both.Go(func() {
			defer cancel()
			a.mu.Lock()
			value := t.next()
			a.log("%s: proclaims %s", a.name, value)
			a.mu.Unlock()
			var err error
			if below {
				var same *election.Leadership
				if _, same, err = e.Campaign(ctx, value); same != nil && same != lead {
					a.mu.Lock()
					a.fail("%s: Campaign below a leadership brings another one, %d", a.name, same.Token())
					a.mu.Unlock()
				}
			} else {
				err = lead.Proclaim(ctx, value)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			a.log("%s: proclaimed %s: %v", a.name, value, err)
			a.proclaimed(l, t, value, err, ctx)
		})
		a.sleep(0) // so that the two calls come at different instants, in this order
	}
	both.Wait()
}

// proclaimed checks the result of Proclaim. The caller must hold a.mu.
func (a *actor) proclaimed(l *elected, t *term, value string, err error, ctx context.Context) {
	l.beliefs()
	_, sound := l.considered[t.part]
	sound = sound && !t.part.void() && !a.p.over()
	switch {
	case err == nil && sound && time.Since(l.lost) > lease:
		if v := l.read(); v.token != t.part.token || numberOf(v.value) < numberOf(value) {
			a.fail("%s: proclaimed %s, and Redis has %s", a.name, value, v.value)
		}
	case err != nil:
		a.counts.Add("proclaims that were not stored")
		if ended := errors.Is(err, rlock.ErrLost) || errors.Is(err, rlock.ErrNotHeld) ||
			errors.Is(err, rlock.ErrClosed); sound && (ended || a.well() && ctx.Err() == nil) {
			a.fail("%s: Proclaim: %v", a.name, err)
		}
	}
}

// resign ends a leadership, and checks the results.
func (a *actor) resign(l *elected, t *term, led context.Context, lead *election.Leadership) {
	if a.p.crashed.Load() {
		return
	}
	ctx := bg
	if a.rnd.IntN(3) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(bg, a.clock.Until(upTo(a.rnd, 500*time.Millisecond)))
		defer cancel()
	}
	part := t.part
	a.mu.Lock()
	l.beliefs()
	_, valid := l.considered[part]
	if delete(l.considered, part); valid {
		l.free = time.Now()
	}
	a.log("%s: resigns under %d", a.name, part.token)
	a.mu.Unlock()

	err := lead.Resign(ctx)
	again := lead.Resign(ctx)

	a.mu.Lock()
	defer a.mu.Unlock()
	a.log("%s: resigned under %d: %v", a.name, part.token, err)
	a.counts.Add("resigned")
	if part.valid() || led.Err() == nil || !errors.Is(again, rlock.ErrNotHeld) && !a.p.over() {
		a.fail("%s: has resigned, and Err is %v, its context's %v, and of a second Resign %v",
			a.name, lead.Err(), led.Err(), again)
	}
	v := l.read()
	switch {
	case a.p.over() || part.void():
	case err == nil && !valid:
		a.fail("%s: Resign of what was lost: nil", a.name)
	case err != nil && valid && a.well() && ctx.Err() == nil, errors.Is(err, rlock.ErrNotHeld),
		errors.Is(err, rlock.ErrClosed):
		a.fail("%s: Resign: %v", a.name, err)
	case err == nil && l.doubt(part) == "":
		a.fail("%s: resigned, and Redis still has it", a.name)
	case err == nil && a.well() && v.token == part.token:
		a.fail("%s: resigned, and Redis still has its value %s", a.name, v.value)
	}
}

// lookAt reads the leader and the candidates, and checks them.
func (a *actor) lookAt(l *elected, e *election.Election) {
	ctx, cancel := context.WithTimeout(bg, a.clock.Until(time.Second))
	defer cancel()
	start := time.Now()
	leader, any, err := e.Leader(ctx)
	st, listed := e.Inspect(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log("%s: asks: the leader is %d, %s, %v; %d wait, %v",
		a.name, leader.Token, leader.Value, err, len(st.Queue), listed)
	if len(st.Holders) > 1 || st.Held && st.Token == 0 {
		a.fail("%s: the leaders are %+v", a.name, st.Holders)
	}
	if err != nil {
		if a.well() && ctx.Err() == nil && !a.p.over() {
			a.fail("%s: Leader: %v", a.name, err)
		}
		return
	}
	if at, found := l.looks[sight{a.p.name, leader}]; !found || at.Before(start) || any == leader.None() {
		a.fail("%s: Leader: %d, %s, %v, and Redis did not say so", a.name, leader.Token, leader.Value, any)
	}
	if any {
		l.check(a.name, leader)
	}
}
