package latch

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
)

// state is what a waiter knows of its run.
type state struct {
	status   byte // R, P, Z, D or G, as look.lua says; 0: not known
	run      string
	count    int
	party    string        // P: the one that died
	left     time.Duration // R: until the next lease ends; negative: none has one
	lifetime time.Duration // R
	deaf     bool          // R: the server knows of nobody that listens
}

// over reports whether the wait for the run is over, and with what error.
func (st *state) over(l *Latch) (over bool, err error) {
	switch st.status {
	case 'Z':
		return true, nil
	case 'D':
		return true, l.fail(ErrDeleted)
	case 'G':
		return true, l.fail(ErrGone)
	case 'P':
		return true, &PartyDiedError{Name: l.keys.Name, Party: st.party}
	}
	return false, nil
}

// look asks how a run stands; "": the one that is under way.
func (l *Latch) look(b *wakeup.Bounds, run string) (st state, err error) {
	a, err := l.ask(b, lookScript, run, l.s.SoleChannel())
	if err != nil {
		return state{}, err
	}
	st.status = a.status
	switch a.status {
	case 'Z', 'D', 'G':
		return st, nil
	case 'P', 'R':
	default:
		return state{}, l.unexpected(a)
	}
	st.run, a.rest, _ = strings.Cut(a.rest, " ")
	count, rest, _ := strings.Cut(a.rest, " ")
	if st.count, err = strconv.Atoi(count); err != nil {
		return state{}, l.unexpected(a)
	}
	if st.status == 'P' {
		st.party = rest
		return st, nil
	}
	rest, st.deaf = strings.CutSuffix(rest, " D")
	left, lifetime, _ := strings.Cut(rest, " ")
	var ok bool
	if st.left, ok = protocol.Remaining(left); !ok {
		return state{}, l.unexpected(a)
	}
	if st.lifetime, ok = protocol.Remaining(lifetime); !ok || st.lifetime <= 0 { // changed by hand
		st.lifetime = MinLifetime
	}
	return st, nil
}

// Wait blocks until the count of the run that is under way is 0, and returns nil then. It returns nil at once
// where none is under way. It returns a *[PartyDiedError] if the lease of a party has ended or ends,
// [ErrDeleted], or [ErrGone] if nothing is known of the run any more. An outage does not end it while it
// sleeps. If it has to look and gets no answer, it tries again until ctx has ended. If ctx has no deadline,
// it does so for as long as the session's lease (30 s by default), and returns the error then. After an error
// nothing has changed: Wait can be called again.
func (l *Latch) Wait(ctx context.Context) error {
	b, done, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	began := time.Now()
	st, err := l.look(b, "") // a latch that is over needs no subscription
	for try := 1; err != nil; try++ {
		switch {
		case b.Over() || !wire.Judge(err).Transient || !b.Endures(began, began, l.s.Lease):
			return err
		case !wire.Pause(b.Until, wire.Backoff(try, 16*time.Millisecond, time.Second)):
			return failure.Troubled(l.ended(b), err)
		}
		st, err = l.look(b, "")
	}
	if over, err := st.over(l); over {
		return err
	}
	return l.wait(b, st.run, st)
}

// waiter is one wait for one run. It belongs to its goroutine.
type waiter struct {
	l        *Latch
	b        *wakeup.Bounds
	news     *wakeup.Listener
	own      *pubsub.Subscription // to the session's channel, which says where the connection leads
	run      string
	next     time.Time // when to look, if nothing is heard
	failing  time.Time // since when looking has failed; zero: it has not
	failures int
}

// wait waits for the end of a run. st is what is known of it.
func (l *Latch) wait(b *wakeup.Bounds, run string, st state) error {
	w := &waiter{l: l, b: b, run: run, news: wakeup.Listen(l.channel.(string), l.s.Hub),
		own: l.s.Hub.Subscribe(l.s.Channel())}
	defer w.news.Close()
	defer w.own.Close()
	w.plan(&st)
	for {
		heard, ended := b.Sleep(max(0, time.Until(w.next)), w.news.Ready)
		if ended {
			return l.ended(b)
		}
		look := !heard
		if heard {
			var over bool
			var err error
			messages, gap := w.news.Take()
			look = look || gap
			for _, m := range messages {
				if !over {
					over, err = w.hear(m)
				}
			}
			if over {
				return err
			}
		}
		if !look {
			continue
		}
		if over, err := w.look(); over {
			return err
		}
	}
}

// hear takes a message: it may end the wait, or bring the next look forward.
func (w *waiter) hear(message string) (over bool, err error) {
	kind, rest, _ := strings.Cut(message, " ")
	run, left, _ := strings.Cut(rest, " ")
	if run != w.run {
		return false, nil
	}
	switch kind {
	case "Z", "D":
		return (&state{status: kind[0]}).over(w.l)
	case "L": // a lease that ends then
		if d, ok := protocol.Remaining(left); ok && d >= 0 {
			w.sooner(d)
		}
	}
	return false, nil
}

// sooner has the waiter look when a lease has ended that lasts for d, if it would look later.
func (w *waiter) sooner(d time.Duration) {
	if at := time.Now().Add(d + time.Millisecond); at.Before(w.next) {
		w.next = at
	}
}

// plan sets when to look next, if nothing is heard. It is once in the session's lease at least: a message can
// be lost between two nodes, and a connection can lead to a server on which nothing is published.
func (w *waiter) plan(st *state) {
	rest := w.l.lifetime
	if st.status == 'R' {
		rest = st.lifetime
	}
	w.next = time.Now().Add(min(rest/3, protocol.MaxRest, w.l.s.Lease))
	if st.status == 'R' && st.left >= 0 {
		w.sooner(st.left)
	}
}

// look looks how the run stands, and when to look again. In an outage it is soon, until the session's lease
// has passed.
func (w *waiter) look() (over bool, err error) {
	asked := time.Now()
	st, err := w.l.look(w.b, w.run)
	if st.deaf {
		w.own.Unheard(asked)
	}
	if err == nil {
		w.failing, w.failures = time.Time{}, 0
		w.plan(&st)
		return st.over(w.l)
	}
	if w.failing.IsZero() {
		w.failing = time.Now()
	}
	if w.b.Over() || !wire.Judge(err).Transient || !w.b.Endures(w.failing, w.failing, w.l.s.Lease) {
		return true, err
	}
	w.failures++
	w.next = time.Now().Add(wire.Backoff(w.failures, 16*time.Millisecond, time.Second))
	return false, nil
}
