package multilock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/option"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// rounds are the tries of one acquisition to take all members.
type rounds struct {
	l       *MultiLock
	ctx     context.Context
	options []rlock.Option
	until   time.Time // when the wait that is allowed is over; zero: never

	first int  // the member to begin with
	wait  bool // for it

	// Of the last round:
	at    context.Context // carries what is held
	holds []*mutex.Hold   // by member
	taken *MemberError    // it failed because this member is taken, or its server fails; nil if it need not be tried again
}

// take tries to take all members, those of first's unit first. It waits only for first,
// and so only while it holds nothing.
func (r *rounds) take() error {
	l := r.l
	r.at, r.holds = r.ctx, make([]*mutex.Hold, len(l.members))
	taken := r.taken
	r.taken = nil
	for n := range l.units {
		unit := l.units[(l.unit[r.first]+n)%len(l.units)]
		if n == 0 {
			unit = frontOf(unit, r.first)
		}
		for at, i := range unit {
			if r.holds[i] != nil {
				continue
			}
			options := r.options
			if !r.until.IsZero() {
				left := time.Until(r.until)
				if left <= 0 {
					if taken == nil {
						return l.about(i, errTooSlow)
					}
					return taken
				}
				options = append(options[:len(options):len(options)], rlock.WaitAtMost(left))
			}
			if failed, err := r.member(i, unit[at+1:], options); err != nil {
				return r.failed(failed, err)
			}
		}
	}
	for i, h := range r.holds {
		if err := h.Err(); err != nil {
			return l.about(i, err)
		}
	}
	return nil
}

var errTooSlow = fmt.Errorf("not answered before the wait was over: %w", os.ErrDeadlineExceeded)

// frontOf is unit with first in front.
func frontOf(unit []int, first int) []int {
	order := []int{first}
	for _, i := range unit {
		if i != first {
			order = append(order, i)
		}
	}
	return order
}

// member takes the i-th member, and by the same request, if it can, what is still missing
// of the rest of its unit.
func (r *rounds) member(i int, unit []int, options []rlock.Option) (failed int, err error) {
	l := r.l
	wait := r.wait && i == r.first
	m, ok := l.members[i].(*rlock.Mutex)
	if !ok {
		take := l.members[i].TryLock
		if wait {
			take = l.members[i].Lock
		}
		ctx, h, err := take(r.at, options...)
		if err == nil {
			r.at, r.holds[i] = ctx, (*mutex.Hold)(h)
		}
		return i, err
	}
	var rest []int
	var with []*mutex.Mutex
	for _, j := range unit {
		if r.holds[j] == nil {
			rest, with = append(rest, j), append(with, inner.Mutex(l.members[j].(*rlock.Mutex)))
		}
	}
	var beside []*mutex.Mutex
	if wait && l.passes {
		for j, m := range l.members {
			if r.holds[j] == nil && j != i && !slices.Contains(rest, j) {
				rest, beside = append(rest, j), append(beside, inner.Mutex(m.(*rlock.Mutex)))
			}
		}
	}
	e := inner.Mutex(m)
	cfg := option.NewConfig(e.Default(), options)
	ctx, holds, err := acquireWith(r.at, e, cfg, !wait, with, beside)
	var refused redis.Error
	if errors.As(err, &refused) && !passing(err) && with != nil { // on account of which?
		ctx, holds, err = acquireWith(r.at, e, cfg, !wait, nil, nil)
	}
	if err == nil {
		r.at, r.holds[i] = ctx, holds[0]
		for n, h := range holds[1:] { // of with and beside
			r.holds[rest[n]] = h
		}
		return i, nil
	}
	var locked *rlock.LockedError
	if errors.As(err, &locked) {
		for _, j := range rest[:len(with)] { // of one session, so names tell them apart
			if l.members[j].Name() == locked.Name {
				return j, err
			}
		}
	}
	return i, err
}

// failed says what a member's error means for the whole.
func (r *rounds) failed(i int, err error) error {
	e := r.l.about(i, err)
	if r.ctx.Err() == nil {
		for j, h := range r.holds { // the loss of one ends the tries for others
			if h != nil && h.Err() != nil {
				return r.l.about(j, h.Err())
			}
		}
	}
	if !errors.Is(err, rlock.ErrLocked) && !passing(err) || r.wait && i == r.first {
		return e
	}
	var locked *rlock.LockedError
	if errors.As(err, &locked) && locked.Holder != "" {
		for j, h := range r.holds {
			if h != nil && mutex.OwnerField(h) == locked.Holder && h.Name() == locked.Name {
				e.Err = fmt.Errorf("it is the same lock as members[%d], for another session: they exclude each other", j)
				return e
			}
		}
	}
	r.taken = e
	return e
}

// passing reports whether an error is an outage's: its member's Lock rides that out.
func passing(err error) bool {
	var reply redis.Error
	var network net.Error
	return (errors.As(err, &reply) || errors.As(err, &network) || errors.Is(err, io.EOF)) && wire.Judge(err).Transient
}

// giveBackWait bounds the wait for what is given back; the rest goes on in the background.
const giveBackWait = 5 * time.Second

// giveBack gives back what a round took.
func (r *rounds) giveBack() {
	ctx, cancel := context.WithTimeout(r.ctx, giveBackWait)
	defer cancel()
	if !r.until.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, r.until)
		defer cancel()
	}
	done, holds := make(chan struct{}), r.holds // the next round has others
	go func() {
		defer close(done)
		unlockAll(context.WithoutCancel(ctx), holds)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// pause lets rounds that keep meeting each other fall out of step. From the third on it waits
// a random time of up to 4 ms, 8 ms, and so on to 128 ms. Nothing is held meanwhile.
func (r *rounds) pause(restarts int) {
	if restarts < 2 {
		return
	}
	t := time.NewTimer(rand.N(time.Millisecond << min(restarts, 7)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	}
}
