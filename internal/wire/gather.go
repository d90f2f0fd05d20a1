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
	g := &gathering{ctx: ctx, f: f, errs: make([]error, n), batches: map[*redis.Client]*batch{}}
	g.calls.Add(n)
	if n > 0 {
		g.call(0)
	}
	g.calls.Wait()
	return g.errs
}

type gathering struct {
	ctx  context.Context
	f    func(ctx context.Context, i int) error
	errs []error // each belongs to its call

	// What the calls have put in so far. It belongs to the call that begins, until it has made its first
	// request or has returned.
	batches map[*redis.Client]*batch
	link    *Link // of one of the requests

	// calls have not returned. One may return before another goroutine makes its request.
	calls sync.WaitGroup
}

// seat is the place of the i-th call.
type seat struct {
	*gathering
	i int
}

type seatKey struct{}

func (g *gathering) call(i int) {
	// Until the call's first request, or its return. The contexts of what it takes keep this, and no more.
	free := new(atomic.Pointer[seat])
	free.Store(&seat{g, i})
	defer func() { // also where a hook of the client calls runtime.Goexit
		switch s := free.Swap(nil); {
		case s == nil: // it has made its request
		case g.errs[i] != nil:
			s.fail()
		default:
			s.next()
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

// next has the call behind this one begin. Behind the last, the requests leave.
func (s *seat) next() {
	if s.i+1 < len(s.errs) {
		go s.call(s.i + 1)
		return
	}
	for to, b := range s.batches {
		if len(s.batches) == 1 {
			s.link.send(to, b)
		} else {
			go s.link.send(to, b)
		}
	}
}

// fail ends it: this call has failed.
func (s *seat) fail() {
	for _, b := range s.batches {
		for _, r := range b.requests {
			r.fail(ErrUnsent)
		}
		close(b.over)
	}
	for i := s.i + 1; i < len(s.errs); i++ {
		s.errs[i] = ErrUnsent
		s.calls.Done()
	}
}

// request sends a request to one server with those of the other calls.
func (s *seat) request(
	ctx context.Context, l *Link, to *redis.Client, r Request, sc *Script,
) (string, error) {
	b := s.batches[to]
	if b == nil {
		b = newBatch(ctx)
		s.batches[to] = b
	}
	i := b.add(r, sc)
	s.link = l
	s.next()
	return b.answer(ctx, l, i)
}
