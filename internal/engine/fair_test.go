package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// timing is when the goroutines of a session ask for a fair lock, in some state of it.
type timing struct {
	what                   string
	held, standing, rivals bool // this session holds it, or stands in the queue; other sessions want it
	back                   int
	after                  time.Duration // they ask; negative: never
	size                   int
}

// run makes a lock of that state, lets f act on it, and checks what follows. f returns what ends its
// goroutines.
func (c timing) run(t *testing.T, f func(*Permits, *pool) (end func())) {
	t.Run(c.what, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			m, p := newLock(t, s)
			if c.held {
				s.answers <- "G 1000000 7"
				defer unlock(t, granted(t, lock(t, m, context.Background())))
			}
			s.got()
			p.mu.Lock()
			if c.standing {
				p.lanes = append([]*lane{{p: p, full: true, attempts: []*attempt{{}}}}, p.lanes...)
			}
			p.rivals, p.back = c.rivals, c.back
			p.mu.Unlock()
			start := time.Now()
			defer f(m, p)()
			time.Sleep(time.Second)
			switch all := s.got(); {
			case c.after < 0:
				if len(all) > 0 {
					t.Errorf("asked: %+v", all)
				}
			case len(all) != 1 || all[0].at.Sub(start) != c.after || all[0].size != c.size:
				t.Errorf("after %v, %d were to ask: %+v", c.after, c.size, all)
			}
		})
	})
}

func TestGoroutinesThatMayAskTogetherWaitAMomentForEachOther(t *testing.T) {
	const between = formTime / 2 // the arrivals of two goroutines
	for _, c := range []timing{
		{what: "the lock seems free", after: 0, size: 1},
		{what: "others hold it", rivals: true, after: 0, size: 1},
		{what: "this session waits already", standing: true, after: formLong, size: 2},
		{what: "it does, and others, too", standing: true, rivals: true, after: 0, size: 1},
		{what: "this session holds it", held: true, after: formTime, size: 2},
		{what: "and others wait, too", held: true, rivals: true, after: formTime, size: 2},
		{what: "two had it, and may come back", back: 2, after: between, size: 2},
		{what: "three had it", back: 3, after: formTime, size: 2},
	} {
		c.run(t, func(m *Permits, p *pool) func() {
			ctx, cancel := context.WithCancel(context.Background())
			waits := []<-chan got{lock(t, m, ctx)}
			time.Sleep(between)
			if c.size == 2 {
				waits = append(waits, lock(t, m, ctx))
			}
			return func() {
				cancel()
				for _, w := range waits {
					<-w
				}
			}
		})
	}
}

func TestAnEndLetsTheNextLaneAsk(t *testing.T) {
	const never = -1
	for _, told := range []bool{false, true} { // Redis
		other := timing{what: "others wait, too", rivals: true, after: formLong, size: 1}
		if told {
			other.after = formTime
		}
		for _, c := range []timing{
			{what: "only this session waits", after: 0, size: 1},
			{what: "this session waits in the queue", standing: true, after: never}, // their time runs
			other,
		} {
			if told {
				c.what += ", and Redis was told"
			}
			c.run(t, func(_ *Permits, p *pool) func() {
				p.s().Begin()
				defer p.s().End()
				p.mu.Lock()
				defer p.mu.Unlock()
				p.lane(Exclusive).waiters.push(&waiter{a: &acquisition{p: p, ctx: context.Background()}})
				p.ended(told)
				return func() {}
			})
		}
	}
}

func TestOneLaneAsksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		p.rivals = true // so that no goroutine waits for others to ask with
		var waits []<-chan got
		for range 3 {
			waits = append(waits, lock(t, m, context.Background()))
		}
		if all := s.got(); kinds(all) != "ask" || all[0].size != 1 {
			t.Fatalf("%+v", all)
		}
		s.answers <- held(7)
		if all := s.got(); kinds(all) != "ask" || all[0].size != 2 {
			t.Fatalf("%+v", all)
		}
		s.answers <- "G 1000000 19"
		for i, w := range waits[1:] {
			hold := granted(t, w)
			if hold.Token() != int64(19+i) {
				t.Errorf("number %d has token %d", i+2, hold.Token())
			}
			unlock(t, hold)
		}
		p.message(attemptOf(t, p, 0), 2000, 1000000, time.Minute)
		unlock(t, granted(t, waits[0]))
	})
}

// The context of the former one ends, and its Err says so, before a goroutine enters the later one.
func TestALaterGrantEndsAFormerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		s.answers <- "G 1000000 7"
		former := granted(t, lock(t, m, context.Background()))
		waits := lock(t, m, context.Background())
		time.Sleep(time.Second)
		p.message(attemptOf(t, p, 1), 2000, 2000000, time.Minute) // the former one was forced
		later := granted(t, waits)
		if former.Err() == nil || later.Err() != nil || len(p.grants) != 1 {
			t.Errorf("the former: %v; the later: %v", former.Err(), later.Err())
		}
		unlock(t, later)
		_ = former.Unlock(context.Background()) // which ends it for the collector, too
	})
}
