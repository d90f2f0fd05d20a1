package wire

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// ErrUnsent is the error of what was not asked for, because something before it cannot be had.
var ErrUnsent = errors.New("lockline: not asked for, since another one cannot be had")

// Gather calls f for 0 to n-1, each in a goroutine of its own, and returns their errors once all have
// returned. The first request that a call makes with its context leaves together with those of the others, in
// one pipeline for each server and in the order of the calls.
//
// A call begins when the one before has made its first request or has returned. If it has returned an error
// without a request, nothing is sent of the calls before it, and those behind it are not made: their error is
// ErrUnsent. So no call may wait for another one before its request.
func Gather(ctx context.Context, n int, f func(ctx context.Context, i int) error) []error {
	g := &gathering{ctx: ctx, f: f, seats: make([]seat, n), errs: make([]error, n)}
	g.calls.Add(n)
	if n > 0 {
		g.call(0)
	}
	g.calls.Wait()
	g.f = nil // which what came of the calls would keep
	return g.errs
}

type gathering struct {
	// What follows never changes, but for the fields of seats and errs, which belong to their calls.
	ctx   context.Context
	f     func(ctx context.Context, i int) error
	seats []seat
	errs  []error

	// calls have not returned. One may return before another goroutine makes its request.
	calls sync.WaitGroup
}

// seat is one call's place. Its request is written before the next call begins, and its answer before over is
// closed.
type seat struct {
	g *gathering
	i int

	// Of the request, if there is one:
	ctx  context.Context
	link *Link
	to   *redis.Client
	r    Request
	sc   *Script
	over chan struct{} // closed when the following are there

	reply string
	err   error
}

type seatKey struct{}

func (g *gathering) call(i int) {
	s := &g.seats[i]
	s.g, s.i = g, i
	// Until the call's first request, or its return. The contexts of what it takes keep this, and no more.
	free := new(atomic.Pointer[seat])
	free.Store(s)
	defer func() { // also where a hook of the client calls runtime.Goexit
		if s := free.Swap(nil); s != nil {
			s.leave(g.errs[i] != nil)
		}
		g.calls.Done()
	}()
	g.errs[i] = g.f(context.WithValue(g.ctx, seatKey{}, free), i)
}

// seatOf is the seat of a request that is the first of its call; nil if there is none.
func seatOf(ctx context.Context) *seat {
	free, _ := ctx.Value(seatKey{}).(*atomic.Pointer[seat])
	if free == nil {
		return nil
	}
	return free.Swap(nil)
}

// leave has the others leave without a request of this call. There may be no seat.
func (s *seat) leave(failed bool) {
	switch {
	case s == nil:
	case failed:
		s.g.fail(s.i)
	default:
		s.next()
	}
}

// next has the call behind this one begin. Behind the last, the requests leave.
func (s *seat) next() {
	g := s.g
	if s.i+1 < len(g.seats) {
		go g.call(s.i + 1)
		return
	}
	servers := map[*redis.Client][]*seat{}
	for i := range g.seats {
		if s := &g.seats[i]; s.to != nil {
			servers[s.to] = append(servers[s.to], s)
		}
	}
	for _, together := range servers {
		if len(servers) == 1 {
			send(together)
		} else {
			go send(together)
		}
	}
}

// fail ends it: the i-th call has failed.
func (g *gathering) fail(i int) {
	for n := range i {
		if s := &g.seats[n]; s.to != nil {
			s.err = ErrUnsent
			close(s.over)
		}
	}
	for i++; i < len(g.seats); i++ {
		g.errs[i] = ErrUnsent
		g.calls.Done()
	}
}

// request sends a request to one server with those of the other calls.
func (s *seat) request(
	ctx context.Context, l *Link, to *redis.Client, r Request, sc *Script,
) (string, error) {
	s.ctx, s.link, s.to, s.r, s.sc, s.over = ctx, l, to, r, sc, make(chan struct{})
	s.next()
	<-s.over
	if moved(s.err) {
		return l.alone(ctx, r.again(), sc)
	}
	return s.reply, s.err
}

func send(together []*seat) {
	if s := together[0]; len(together) == 1 {
		defer close(s.over)
		s.reply, s.err = s.link.alone(s.ctx, s.r, s.sc)
		return
	}
	requests, scripts := make([]Request, len(together)), make([]*Script, len(together))
	for i, s := range together {
		requests[i], scripts[i] = s.r, s.sc
	}
	defer func() { // also where a hook of the client calls runtime.Goexit
		for i, s := range together {
			s.reply, s.err = requests[i].Result()
			close(s.over)
		}
	}()
	together[0].link.pipeline(together[0].ctx, together[0].to, requests, scripts)
}
