// Package call makes requests whose caller may leave before they are answered.
//
// A request is never interrupted: go-redis reads on when a context ends, and what was sent may have run. So a caller that
// leaves abandons its call. A call is under way, then answered or abandoned, whichever is first, and only once. An answered
// one is its caller's; an abandoned one is rolled back, once, by the goroutine that has sent it, or by another where the
// answer came in the very instant.
package call

import (
	"sync/atomic"

	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// Request is a request whose caller may leave before it is answered.
type Request interface {
	// Send sends it and blocks for the answer. abandoned says that the caller has left.
	Send(abandoned *atomic.Bool) wire.Outcome
	// RollBack ends what came of an abandoned request.
	RollBack(o wire.Outcome)
}

// Func is the Send of a Request of which nothing has to be rolled back.
type Func func(abandoned *atomic.Bool) wire.Outcome

func (f Func) Send(abandoned *atomic.Bool) wire.Outcome { return f(abandoned) }

func (Func) RollBack(wire.Outcome) {}

// A Prompt request can be sent in its caller's goroutine where the server answers promptly.
type Prompt interface {
	Request
	// SendPromptly sends one copy as Link.Promptly does. If that is not answered, Send is to send it again.
	SendPromptly() (o wire.Outcome, ok bool)
}

// call is a request under way, in a goroutine of its own if it may be abandoned.
type call struct {
	r         Request
	s         *session.Session
	done      chan struct{} // closed when o is there
	o         wire.Outcome
	earlier   error       // of a copy that was not answered, and may have run
	abandoned atomic.Bool // set by the caller that leaves, or by the answer, whichever is first
	rolled    func()      // called by whichever goroutine has rolled it back
}

// Exchange sends a request and waits for the answer as long as b lasts. If that ends first, leave is called, while nothing
// of the request is rolled back yet, and ok is false. Then a goroutine that is counted in the work of s rolls back what comes
// of the request, and calls what leave has returned.
func Exchange(b *wakeup.Bounds, s *session.Session, r Request, leave func() (rolledBack func())) (o wire.Outcome, ok bool) {
	if b.Unbounded() {
		var never atomic.Bool
		return r.Send(&never), true
	}
	var earlier error
	if p, can := r.(Prompt); can && b.Expired == nil { // what may keep it from being sent ends with b.Ctx alone
		o, ok := p.SendPromptly()
		switch {
		case b.Over():
			c := &call{r: r, o: o, rolled: leave()}
			s.Go(c.rollBack)
			return wire.Outcome{}, false
		case ok:
			return o, true
		}
		earlier = o.Unanswered
	}
	c := &call{r: r, s: s, earlier: earlier, done: make(chan struct{})} // not before: a prompt request needs none
	s.Add(1)
	go c.send()
	if _, ok := wakeup.Await(b, c.done); ok {
		return c.o, true
	}
	c.rolled = leave()
	if !c.abandoned.CompareAndSwap(false, true) { // it was answered in that instant
		s.Go(func() {
			<-c.done
			c.rollBack()
		})
	}
	return wire.Outcome{}, false
}

func (c *call) send() {
	defer c.s.End()
	c.o = c.r.Send(&c.abandoned)
	if c.o.Unanswered == nil {
		c.o.Unanswered = c.earlier
	}
	if c.abandoned.CompareAndSwap(false, true) {
		close(c.done)
		return
	}
	c.rollBack()
}

func (c *call) rollBack() {
	defer c.rolled()
	c.r.RollBack(c.o)
}
