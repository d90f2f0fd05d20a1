package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestAnAttemptAsksThenStandsThenIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		waits := lock(t, m, context.Background())
		c := attemptOf(t, p, 0)
		want := func(state attemptState) {
			t.Helper()
			synctest.Wait()
			if got := c.now(); got != state {
				t.Errorf("it is %v, want %v", got, state)
			}
		}
		want(requested)
		s.answers <- held(7)
		want(queued)
		// Without the right nonce, anybody may have sent this message.
		p.registry.inbox.receive(fmt.Sprintf("%s 9 1000000 60000 %s", c.owner, rand.Text()))
		want(queued)
		// This grant has ended, because the holder has a higher token.
		p.registry.inbox.receive(fmt.Sprintf("%s 7 1000000 60000 %s", c.owner, c.nonce))
		want(queued)
		p.registry.inbox.receive(fmt.Sprintf("%s 9 1000000 60000 %s", c.owner, c.nonce))
		want(done)
		hold := granted(t, waits)
		if hold.Token() != 9 || p.registry.inbox.find(c.owner.(string)) != nil {
			t.Errorf("token %d", hold.Token())
		}
		unlock(t, hold)
	})
}

func TestAGrantThatIsLearnedWhileAskingCountsAtOnceAndTheReleaseBarsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		unlock(t, func() *handle.Hold { // brings the time
			s.answers <- "G 1000000 1"
			return granted(t, lock(t, m, context.Background()))
		}())
		waits := lock(t, m, context.Background())
		a := attemptOf(t, p, 0)
		p.message(a, 9, 1000000, time.Minute)
		if a.now() != done || a.staleUntil == 0 || a.staleUntil != a.notAfter {
			t.Errorf("it is %v, and a copy may come until %d, not after %d", a.now(), a.staleUntil,
				a.notAfter)
		}
		s.answers <- held(7) // a refusal that is older than the message
		hold := granted(t, waits)
		if hold.Token() != 9 {
			t.Errorf("token %d", hold.Token())
		}
		unlock(t, hold)
	})
}

func TestAGrantThatComesBetweenTheTimeToAskAndTheRequestBarsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		waits := lock(t, m, context.Background())
		a := attemptOf(t, p, 0)
		s.answers <- held(7) // brings the time
		synctest.Wait()
		p.mu.Lock()
		a.notAfter, a.inFlight = 1_000_000_000, true // as sendIfDue sets them
		p.mu.Unlock()
		p.message(a, 9, 1000000, time.Minute)
		if a.staleUntil != 1_000_000_000 {
			t.Errorf("a copy may come until %d, not after %d", a.staleUntil, a.notAfter)
		}
		unlock(t, granted(t, waits))
	})
}

// Otherwise each of these goroutines would cost a request and a place in the queue that nobody needs.
func TestGoroutinesOfALaneThatHasTheLockAskNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		first := lock(t, m, context.Background())
		next := []<-chan got{lock(t, m, context.Background()), lock(t, m, context.Background())}
		s.answers <- held(7)
		s.answers <- held(7)
		if all := s.got(); kinds(all) != "ask ask" || all[1].size != 2 {
			t.Errorf("%+v", all)
		}
		a, b := attemptOf(t, p, 0), attemptOf(t, p, 1)
		p.message(a, 9, 1000000, time.Minute)
		unlock(t, granted(t, first))
		s.got()
		p.message(b, 2000, 1000000, time.Minute)
		for i, c := range next {
			hold := granted(t, c)
			time.Sleep(time.Second)
			if all := s.got(); len(all) > 0 || hold.Token() != 2000+int64(i) {
				t.Errorf("number %d has token %d, and %s", i, hold.Token(), kinds(all))
			}
			unlock(t, hold)
		}
	})
}

// Redis notifies a session of its grant by a message only if another session has caused the grant.
func TestARefusalThatNamesAnotherAttemptOfTheSessionIsItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		first := lock(t, m, context.Background())
		ctx, cancel := context.WithCancel(context.Background())
		next := lock(t, m, ctx)
		a := attemptOf(t, p, 0)
		s.answers <- held(7)
		s.answers <- fmt.Sprintf("Q 1000000 60000 %s 9\nme", a.owner)
		hold := granted(t, first)
		if hold.Token() != 9 {
			t.Errorf("token %d", hold.Token())
		}
		cancel()
		<-next
		unlock(t, hold)
	})
}

// A client that may only publish can make an attempt send a request earlier, but not later. Proves: messages
func TestAMessageBringsTheNextLookForwardAndNeverPutsItOff(t *testing.T) {
	const look = time.Second + time.Millisecond
	for _, c := range []struct {
		messages []string
		at       time.Duration // when the next request is sent
	}{
		{nil, 36 * time.Second},
		{[]string{"1000"}, look},
		{[]string{"3600000"}, 36 * time.Second},
		{[]string{"1000", "3600000"}, look},
		{[]string{"3600000", "1000"}, look},
		{[]string{"1000", "none"}, look},
		{[]string{"1000", "-1"}, time.Millisecond},
	} {
		for _, standing := range []bool{false, true} { // queued when the messages arrive
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				m, p := newLock(t, s)
				ctx, cancel := context.WithCancel(context.Background())
				waits := lock(t, m, ctx)
				attempt := attemptOf(t, p, 0)
				if standing {
					// The reply says that another session will send a request when the holder's lease ends.
					s.answers <- "QB 1 60000 other:1 7\nme"
					synctest.Wait()
				}
				for _, message := range c.messages {
					p.registry.inbox.receive(attempt.owner.(string) + " " + message)
				}
				if !standing {
					s.answers <- "QB 1 60000 other:1 7\nme"
				}
				s.got()
				start := time.Now()
				time.Sleep(40 * time.Second)
				if all := s.got(); len(all) == 0 || all[0].kind != "ask" || all[0].at.Sub(start) != c.at {
					t.Errorf("%q, standing before: %v: %+v, want it to ask after %v",
						c.messages, standing, all, c.at)
				}
				cancel()
				<-waits
			})
		}
	}
}

func TestThoseWhoseGrantComesTooLateAskAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, p := newLock(t, s)
		ctx, cancel := context.WithTimeout(context.Background(), 5*p.s.Lease)
		defer cancel()
		waits := lock(t, m, ctx)
		former := attemptOf(t, p, 0)
		time.Sleep(2 * p.s.Lease) // the answer is in flight for this time
		s.answers <- "G 1000000 9"
		all := s.got()
		if next := attemptOf(t, p, 0); next == former || next.now() != requested || next.numLate != 1 {
			t.Errorf("it is %v, after %d times", next.now(), next.numLate)
		}
		released := slices.ContainsFunc(all, func(r request) bool {
			return r.kind == "release" && r.owner == former.owner
		})
		if !released || len(all) != 3 {
			t.Errorf("%s", kinds(all))
		}
		s.answers <- "G 1000000 20"
		hold := granted(t, waits)
		if hold.Token() != 20 {
			t.Errorf("token %d", hold.Token())
		}
		unlock(t, hold)
	})
}

// The time in a message is converted by the last reply. If this reply took long, the lease of the grant may
// seem to have ended although it has not.
func TestAGrantThatSeemsOverIsAskedForAgain(t *testing.T) {
	for _, c := range []struct {
		what, answer string
		stands       bool
	}{
		{"it is not", "G 9000000 9", false},
		{"it is", held(11), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			m, p := newLock(t, s)
			waits := lock(t, m, context.Background())
			time.Sleep(3 * time.Second) // the answer is in flight for this time
			s.answers <- held(7)
			synctest.Wait()
			s.got()
			attempt := attemptOf(t, p, 0)
			p.message(attempt, 9, 1000001, 2*time.Second)
			if all := s.got(); kinds(all) != "ask" || all[0].owner != attempt.owner {
				t.Fatalf("%s: %+v", c.what, all)
			}
			s.answers <- c.answer
			synctest.Wait()
			if !c.stands {
				hold := granted(t, waits)
				if hold.Token() != 9 || time.Until(hold.Deadline()) < p.s.Lease*9/10 {
					t.Errorf("token %d for %v", hold.Token(), time.Until(hold.Deadline()))
				}
				unlock(t, hold)
				return
			}
			if got := attemptOf(t, p, 0); got != attempt || got.now() != queued {
				t.Errorf("%s: it is %v", c.what, got.now())
			}
			p.message(attempt, 12, 1000002, time.Minute)
			unlock(t, granted(t, waits))
		})
	}
}

// loading is the error of a Redis that is loading its data.
type loading struct{}

func (loading) Error() string { return "LOADING Redis is loading the dataset in memory" }
func (loading) RedisError()   {}

func TestAWaiterSendsItsRequestLessAndLessOftenWhileRedisRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		refuse := func(c fake.Call) (string, error) {
			requests.Add(1)
			return "", loading{}
		}
		m := New(fake.Session(t, fake.Client(t, refuse)), kind, "x", Config{})
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _, err := m.Acquire(ctx, Exclusive, Config{}, false)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if n := requests.Load(); n < 20 || n > 60 {
			t.Errorf("%d requests in 5 s", n)
		}
	})
}
