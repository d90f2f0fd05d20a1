package mutex

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestTheNextInLineHasTheNextTokenOfTheBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStore(t)
		_, hold := l.lock(t, bg, Config{})
		second, third := l.wait(t, bg, Config{}), l.wait(t, bg, Config{})
		for token, next := range []<-chan got{nil, second, third} {
			if next != nil {
				unlock(t, hold)
				hold = granted(t, next)
			}
			if hold.Token() != int64(1+token) {
				t.Errorf("holder %d has token %d", token, hold.Token())
			}
		}
		l.Want(t, "while it was passed on", "ask")
		unlock(t, hold)
		l.Want(t, "Unlock", "release 1..3")
	})
}

func TestALockIsPassedOnInMemoryUnlessSomethingSpeaksAgainstIt(t *testing.T) {
	const (
		lease = time.Minute // of the session
		least = protocol.FirstLease / 4
	)
	fixed := Config{Lease: lease}
	down := func() error { return io.EOF }
	type step func(*testing.T, *store, *Hold) *Hold
	sleep := func(d time.Duration) step {
		return func(_ *testing.T, _ *store, hold *Hold) *Hold { time.Sleep(d); return hold }
	}
	extend := func(d time.Duration) step {
		return func(t *testing.T, _ *store, hold *Hold) *Hold {
			if err := hold.Extend(bg, d); err != nil {
				t.Error(err)
			}
			return hold
		}
	}
	passOn := func(n int) step {
		return func(t *testing.T, l *store, hold *Hold) *Hold {
			for range n {
				next := l.wait(t, bg, Config{})
				unlock(t, hold)
				hold = granted(t, next)
			}
			return hold
		}
	}
	for _, c := range []struct {
		what         string
		passed       bool
		holder, next Config
		renew        func() error
		before       step
	}{
		{what: "nothing", passed: true, before: sleep(0)},
		{what: "the next one wants a lease of its own", next: fixed, before: sleep(0)},
		{what: "the holder has one", holder: fixed, before: sleep(0)},
		{what: "it was made as long as it was", passed: true, before: extend(lease)},
		{what: "it was made longer", before: extend(lease + 1)},
		{what: "a quarter of a first lease is left", passed: true, renew: down, before: sleep(protocol.Valid(lease) - least)},
		{what: "less is left", renew: down, before: sleep(protocol.Valid(lease) - least + 1)},
		{what: "one token is left", passed: true, before: passOn(protocol.Block - 2)},
		{what: "none is", before: passOn(protocol.Block - 1)},
		{what: "the streak goes on", passed: true, before: sleep(fake.Config().Streak - 1)},
		{what: "the streak is over", before: sleep(fake.Config().Streak)},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newStore(t)
				l.OnRenew = c.renew
				_, hold := l.lock(t, bg, c.holder)
				hold = c.before(t, l, hold)
				next := l.wait(t, bg, c.next)
				token := hold.Token()
				unlock(t, hold)
				hold = granted(t, next)
				if passed := hold.Token() == token+1; passed != c.passed {
					t.Errorf("passed on: %v, token %d after %d", passed, hold.Token(), token)
				}
				unlock(t, hold)
			})
		})
	}
}

// endsLater is a part of a session that ends when the test says so.
type endsLater chan struct{}

func (c endsLater) Shutdown(context.Context) error { <-c; return nil }

func TestALockIsNotPassedOnOnceItsSessionCloses(t *testing.T) {
	for _, closing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newStore(t)
			_, hold := l.lock(t, bg, Config{})
			in := EntryOf(hold).Lock()
			end := make(endsLater)
			if _, err := session.PartOf(l.s, "endsLater", func(*session.Session) endsLater { return end }); err != nil {
				t.Fatal(err)
			}
			l.s.Begin() // for Reclaim
			ended := make(chan error, 1)
			if closing {
				go func() { ended <- l.s.Shutdown(bg) }()
				synctest.Wait()
			}
			w := NewAcquisition(bg, in, Config{}).NewWaiter()
			in.Mu.Lock()
			in.Root.Waiters.Push(w)
			tenure := in.Tenure()
			in.Mu.Unlock()
			left, err := tenure.Quit(bg, nil)
			if err != nil || left.last != closing || len(w.Ready) == 1 == closing {
				t.Errorf("closing %v: frees %v, %d handoffs, %v", closing, left.last, len(w.Ready), err)
			}
			close(end)
			if closing {
				if err := left.Send(bg); err != nil {
					t.Error(err)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestWhatIsNestedGoesOnWhenItsOuterHoldIsUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStore(t)
		ctx, outer := l.lock(t, bg, Config{})
		ctx = context.WithoutCancel(ctx)
		_, inner := l.lock(t, ctx, Config{})
		sibling := l.wait(t, ctx, Config{})
		l.Want(t, "two holds", "ask", "keep 2")
		unlock(t, outer)
		synctest.Wait()
		l.Want(t, "Unlock of the outer one", "keep 1")
		if inner.Err() != nil || inner.Token() != 1 {
			t.Errorf("the nested one: token %d, %v", inner.Token(), inner.Err())
		}
		if len(sibling) > 0 {
			t.Error("another goroutine is inside, too")
		}
		unlock(t, inner)
		last := granted(t, sibling)
		if last.Token() != 2 { // nested under nothing any more, it is the next in line
			t.Errorf("the other goroutine has token %d", last.Token())
		}
		unlock(t, last)
		l.Want(t, "at the end", "release 1..2")
	})
}

func TestOneAfterTheOtherNestsUnderOneHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStore(t)
		ctx, outer := l.lock(t, bg, Config{})
		_, first := l.lock(t, ctx, Config{})
		next := l.wait(t, ctx, Config{})
		l.Want(t, "while one is inside", "ask", "keep 2")
		unlock(t, first)
		second := granted(t, next)
		l.Want(t, "when the next one is", "keep 2", "keep 2")
		unlock(t, second)
		unlock(t, outer)
		l.Want(t, "at the end", "keep 1", "release 1")
	})
}
