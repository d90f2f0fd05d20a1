package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// While the session has a fair lock or is queued for it, a goroutine waits a moment for other goroutines.
func TestGoroutinesThatMayAskTogetherWaitAMomentForEachOther(t *testing.T) {
	for _, c := range []struct {
		what           string
		held, standing bool
		after          time.Duration // when they send a request
		size           int
	}{
		{what: "the lock seems free", after: 0, size: 1},
		{what: "this session waits already", standing: true, after: laneFillTime, size: 2},
		{what: "this session holds it", held: true, after: laneFillTime, size: 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				m, p := newLock(t, s)
				if c.held {
					s.answers <- "G 1000000 7"
					defer unlock(t, granted(t, lock(t, m, context.Background())))
				}
				if c.standing {
					p.mu.Lock()
					p.lanes = append(p.lanes, &lane{
						l: p, sealed: true, waiters: []*waiter{{}}, attempts: []*attempt{{state: queued}},
					})
					p.mu.Unlock()
				}
				s.got()
				start := time.Now()
				ctx, cancel := context.WithCancel(context.Background())
				waits := []<-chan got{lock(t, m, ctx)}
				time.Sleep(laneFillTime / 2)
				if c.size == 2 {
					waits = append(waits, lock(t, m, ctx))
				}
				time.Sleep(time.Second)
				if all := s.got(); len(all) != 1 || all[0].at.Sub(start) != c.after || all[0].size != c.size {
					t.Errorf("after %v, %d were to ask: %+v", c.after, c.size, all)
				}
				cancel()
				for _, w := range waits {
					<-w
				}
			})
		})
	}
}

// At a release, the next lane sends its request. If other sessions wait, the lane waits longer for the
// goroutine that has unlocked.
func TestAReleaseLetsTheNextLaneAsk(t *testing.T) {
	for _, rivals := range []bool{false, true} { // other sessions wait, as far as is known
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			if rivals {
				s.served = " other:1 8 60000"
			}
			m, p := newLock(t, s)
			s.answers <- "G 1000000 7"
			hold := granted(t, lock(t, m, context.Background()))
			start := time.Now()
			ctx, cancel := context.WithCancel(context.Background())
			waits := lock(t, m, ctx)
			time.Sleep(laneFillTime / 2)
			s.got()
			p.mu.Lock()
			p.contended = rivals
			p.mu.Unlock()
			unlock(t, hold)
			time.Sleep(time.Second)
			want := laneFillTime / 2
			if rivals {
				want = laneFillTime
			}
			asked := 0
			for _, r := range s.got() {
				if r.kind == "ask" {
					asked++
					if got := r.at.Sub(start); got != want {
						t.Errorf("others wait: %v; it asked after %v, not %v", rivals, got, want)
					}
				}
			}
			if asked != 1 {
				t.Errorf("others wait: %v; it asked %d times", rivals, asked)
			}
			cancel()
			<-waits
		})
	}
}

func TestOneLaneAsksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
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

// The context of the former hold has ended, and its Err returns an error, before a goroutine gets the later
// grant.
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
		_ = former.Unlock(context.Background()) // so that the hold does not count as forgotten
	})
}

// Otherwise each release would begin a lane of few goroutines, so nearly each goroutine would need a request.
func TestALaneFillsOnAtAReleaseIfItsSessionWaitsInRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		s.answers <- "G 1000000 7"
		hold := granted(t, lock(t, m, context.Background()))
		ctx, cancel := context.WithCancel(context.Background())
		waits := []<-chan got{lock(t, m, ctx)}
		time.Sleep(laneFillTime)
		s.answers <- fmt.Sprintf("Q 1000000 60000 %s 7\nme", p.grants[0].owner)
		synctest.Wait() // the second lane is queued, and no other session is known to wait
		start := time.Now()
		waits = append(waits, lock(t, m, ctx))
		time.Sleep(laneFillTime / 2)
		s.got()
		unlock(t, hold)
		waits = append(waits, lock(t, m, ctx)) // joins the third lane
		time.Sleep(time.Second)
		for _, r := range s.got() {
			if r.kind == "ask" && (r.at.Sub(start) != laneFillTime || r.size != 2) {
				t.Errorf("%d requested after %v, want 2 after %v", r.size, r.at.Sub(start), laneFillTime)
			}
		}
		cancel()
		for len(s.answers) < cap(s.answers) {
			s.answers <- held(8)
		}
		for _, w := range waits {
			<-w
		}
		time.Sleep(time.Minute)
	})
}

// The lane is not woken by any other event before its own bound ends.
func TestALaneRequestsWhenAnAttemptIsWithdrawnThatItHasWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		_, p := newLock(t, s)
		newWaiter := func() *waiter {
			return &waiter{l: p, ctx: context.Background(), want: Exclusive}
		}
		fx := p.begin()
		first, later := p.laneFor(Exclusive, &fx), new(lane)
		later.reset(p, Exclusive)
		p.lanes = append(p.lanes, later)
		leaves := newWaiter()
		later.waiters = append(later.waiters, leaves)
		later.newAttempt(&fx)
		a := later.attempts[0] // its request has failed, and will be sent again
		a.inFlight, a.nextRequestAt, fx.attempts = false, fx.age+time.Hour, nil
		first.waiters = append(first.waiters, newWaiter())
		fx.commit()
		if all := s.got(); len(all) != 0 {
			t.Fatalf("%+v while another lane waits for its first reply", all)
		}
		fx = p.begin()
		later.remove(leaves)
		fx.commit()
		if all := s.got(); kinds(all) != "ask" {
			t.Errorf("%s, want a request of the first lane", kinds(all))
		}
		s.answers <- "G 1000000 7"
		synctest.Wait()
	})
}

// Lanes are queued in the order in which they were made, even if a lane waits for more goroutines.
func TestALaneThatFormsIsNotOvertakenByALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		s.answers <- "G 1000000 7"
		hold := granted(t, lock(t, m, context.Background()))
		ctx, cancel := context.WithCancel(context.Background())
		first := lock(t, m, ctx)
		time.Sleep(100 * time.Microsecond)
		s.got()
		p.mu.Lock()
		p.contended = true
		l1 := p.lanes[len(p.lanes)-1]
		p.mu.Unlock()
		unlock(t, hold)
		p.mu.Lock()
		p.contended = true // as the reply to a release with another session's grant does
		p.mu.Unlock()
		time.Sleep(500 * time.Microsecond)
		second := make(chan error, 1)
		go func() {
			_, _, err := m.Acquire(ctx, Exclusive, Config{Lease: 5 * time.Second}, false)
			second <- err
		}()
		synctest.Wait()
		for _, r := range s.got() {
			if r.kind == "ask" {
				p.mu.Lock()
				own := len(l1.attempts) == 1 && l1.attempts[0].owner == r.owner
				p.mu.Unlock()
				if !own {
					t.Errorf("%+v asked before the lane that was there first", r)
				}
				break
			}
		}
		cancel()
		for len(s.answers) < cap(s.answers) {
			s.answers <- held(8)
		}
		<-first
		<-second
		time.Sleep(time.Minute)
	})
}
