package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/standin"
)

// counting proxies before the servers of b tell how many requests they have seen.
func (b bout) counting(ctx context.Context) (_ bout, count func() (float64, error), proxies []*helper, err error) {
	b.setup, proxies, err = through(ctx, b.setup, roleCount)
	return b, func() (n float64, err error) {
		for _, h := range proxies {
			s, err := h.ask()
			if err != nil {
				return 0, err
			}
			seen, err := strconv.Atoi(s)
			if err != nil {
				return 0, err
			}
			n += float64(seen)
		}
		return n, nil
	}, proxies, err
}

// countRequests is a round of its own, at proxies that count requests: as clients send them, not what scripts call.
func (b bout) countRequests(ctx context.Context) (f figures, err error) {
	via, count, proxies, err := b.counting(ctx)
	defer func() { err = errors.Join(err, closeAll(proxies)) }()
	if err != nil {
		return nil, err
	}
	if b.delay > 0 {
		far, delays, err := through(ctx, via.setup, roleDelay, b.delay.String())
		defer func() { _ = closeAll(delays) }()
		if err != nil {
			return nil, err
		}
		via.setup = far
	}
	u, dismiss, err := via.users(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dismiss()) }()
	var requests float64
	t, _, err := via.measure(ctx, u, func(bool) error {
		n, err := count()
		requests = n - requests
		return err
	})
	if err != nil {
		return nil, err
	}
	f = t.faults()
	f.perCycle("requests_per_cycle", requests, &t)
	return f, nil
}

// rankGrants is a round of its own that looks at the order of grants. Each goroutine has a
// client of its own behind a proxy of its own, so that the proxy names the goroutine,
// whatever the library sends, and by what connection.
func (b bout) rankGrants(ctx context.Context) (_ figures, err error) {
	addr, err := host(b.Redis[0])
	if err != nil {
		return nil, err
	}
	test := standin.New("bench")
	defer test.End()
	c := newCrew(ctx)
	defer func() { err = errors.Join(err, c.disband()) }()
	name := newName()
	o := &arrivals{count: func() bool { return c.phase.Load() == measuring }}
	g := new(guard)
	for range b.clients * b.goroutines {
		p := faultproxy.New(test, addr)
		p.SetDelay(b.delay)
		t := o.newTicket()
		asks := func(r faultproxy.Request) bool {
			return !r.Is("SUBSCRIBE", "UNSUBSCRIBE") && slices.ContainsFunc(r.Args, func(a string) bool { return strings.Contains(a, name) })
		}
		p.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if asks(*r) {
				t.asked(r.Seq)
			}
			return faultproxy.Pass
		})
		p.OnReply(func(r faultproxy.Request) { t.answered(r.Seq) })
		b.setup.Redis = []string{readdress(b.setup.Redis[0], p.Addr())}
		b.setup.Rivals = false
		if err := c.hire(b, name, g, 1); err != nil {
			return nil, err
		}
		c.workers[len(c.workers)-1].ticket = t
	}
	c.start()
	t, _, err := b.measure(ctx, c, func(bool) error { return nil })
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := t.faults()
	f["fifo_inversions"], f["fifo_grants"] = float64(o.inversions), float64(o.grants)
	return f, nil
}

// arrivals counts grants out of the order of arrival. One acquisition came before
// another if its first request had been answered when that of the other was seen: of
// requests that overlap it is not known which the server executed first. A goroutine's
// first acquisition does not count as passed over: a session may need requests to get going.
type arrivals struct {
	count func() bool // whether grants count now

	mu         sync.Mutex // guards the rest, and all tickets
	clock      int
	tickets    []*ticket
	grants     int
	inversions int // grants that passed over an acquisition that came before
}

// ticket is one goroutine's current acquisition. The fields are 0 where it has not come to that.
type ticket struct {
	of      *arrivals
	grants  int // of acquisitions before
	begun   bool
	request int // number of the first request
	seen    int // when the proxy saw it
	settled int // when it was answered
}

func (a *arrivals) newTicket() *ticket {
	t := &ticket{of: a}
	a.tickets = append(a.tickets, t)
	return t
}

// begin says that Lock will be called.
func (t *ticket) begin() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	*t = ticket{of: t.of, grants: t.grants, begun: true}
}

// asked says that the proxy saw a request about the lock.
func (t *ticket) asked(request int) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.begun && t.seen == 0 {
		t.of.clock++
		t.request, t.seen = request, t.of.clock
	}
}

func (t *ticket) answered(request int) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.begun && t.seen != 0 && t.request == request && t.settled == 0 {
		t.of.clock++
		t.settled = t.of.clock
	}
}

// granted says that Lock has returned; its caller still holds the lock.
func (t *ticket) granted() {
	a := t.of
	a.mu.Lock()
	defer a.mu.Unlock()
	t.begun = false
	t.grants++
	if !a.count() {
		return
	}
	a.grants++
	for _, other := range a.tickets {
		if other.begun && other.grants > 0 && other.settled != 0 && other.settled < t.seen {
			a.inversions++
			return
		}
	}
}
