package mutex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/inbox"
	"github.com/lockline/lockline/internal/wakeup"
)

func TestNobodyJoinsAnAttemptThatWasAbandoned(t *testing.T) {
	q := &Lock{Kind: kind, line: &line{}}
	gone := &attempt{l: q, state: asking}
	gone.memberLeft() // its request is not sent again
	w := newWaiter(q, Config{})
	q.forming.Push(w)
	if gone.fill(); w.Place != nil || q.forming.First() != w {
		t.Error("somebody did")
	}
}

func TestAnAttemptIsForThoseWhoseGrantCanBeOne(t *testing.T) {
	const session, fixed = 0, time.Second // leases
	for _, c := range []struct {
		leases []time.Duration
		size   int
	}{
		{[]time.Duration{session}, 1},
		{[]time.Duration{session, session, session}, 3},
		{[]time.Duration{session, session, fixed, session}, 2},
		{[]time.Duration{fixed, session}, 1},
		{[]time.Duration{fixed, fixed}, 1},
		{make([]time.Duration, maxMembers+1), maxMembers},
	} {
		q := &Lock{Kind: kind, line: &line{}}
		for _, lease := range c.leases {
			q.forming.Push(newWaiter(q, Config{Lease: lease}))
		}
		all := in(&q.forming)
		next := &attempt{l: q, ctx: context.Background(), lease: c.leases[0]}
		next.fill()
		if next.size != c.size || !slices.Equal(in(&next.members), all[:c.size]) || !slices.Equal(in(&q.forming), all[c.size:]) {
			t.Errorf("of %d, %d wait with it", len(all), next.size)
		}
	}
}

func TestAGrantIsNeverDatedLaterThanItWas(t *testing.T) {
	const redis = int64(1e15)
	base := time.Now().Add(-10 * time.Hour) // before the request was sent that Redis answered
	c := &attempt{began: base.Add(-5 * time.Hour), base: base, redis: redis}
	for _, drift := range []time.Duration{-1, 0, 1} { // percent, by which the local clock is faster
		for _, passed := range []time.Duration{0, time.Millisecond, -time.Millisecond, time.Second, -time.Second, 3 * time.Hour, -3 * time.Hour} { // in Redis
			for _, way := range []time.Duration{0, 50 * time.Millisecond} { // to Redis
				grant := base.Add(way + passed*(100+drift)/100)
				got := c.since(redis + passed.Microseconds())
				if early := grant.Sub(got); early < 0 || early > way+passed.Abs()/50 {
					t.Errorf("drift %d %%, %v after the answer, %v before it: dated %v too early", drift, passed, way, early)
				}
			}
		}
	}
	if got := c.since(redis - (20 * time.Hour).Microseconds()); !got.Equal(c.began) {
		t.Errorf("before it asked: %v after that", got.Sub(c.began))
	}
	if got := c.since(redis + (20 * time.Hour).Microseconds()); got.After(time.Now()) {
		t.Error("in the future")
	}
	if c.redis = 0; !c.since(redis).Equal(base) {
		t.Error("without an answer it is not dated before the request")
	}
}

func TestAnAttemptAsksThenStandsThenIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, q := newQueue(t, s)
		waits := lock(t, m, context.Background())
		c := attemptOf(t, q)
		want := func(state attemptState) {
			t.Helper()
			synctest.Wait()
			if got := c.now(); got != state {
				t.Errorf("it is %v, want %v", got, state)
			}
		}
		want(asking)
		s.answers <- held(7)
		want(standing)
		q.table.inbox.Receive(fmt.Sprintf("%s 9 1000000 60000 %s", c.owner(), inbox.NewNonce())) // anybody may have sent that
		want(standing)
		q.table.inbox.Receive(fmt.Sprintf("%s 7 1000000 60000 %s", c.owner(), c.nonce)) // over: another is the holder's
		want(standing)
		q.table.inbox.Receive(fmt.Sprintf("%s 9 1000000 60000 %s", c.owner(), c.nonce))
		want(over)
		hold := granted(t, waits)
		if hold.Token() != 9 || len(q.standing) > 0 || q.table.inbox.Find(c.owner()) != nil {
			t.Errorf("token %d, %d attempts wait", hold.Token(), len(q.standing))
		}
		unlock(t, hold)
	})
}

func TestAGrantThatIsLearnedWhileAskingCountsAtOnceAndTheReleaseBarsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, q := newQueue(t, s)
		unlock(t, func() *Hold { // brings the time
			s.answers <- "G 1000000 1"
			return granted(t, lock(t, m, bg))
		}())
		waits := lock(t, m, bg)
		a := attemptOf(t, q)
		q.deliver(a.owner(), award{token: 9, lease: time.Minute, since: time.Now()})
		if a.now() != over || a.grant.Late == 0 || a.grant.Late != a.notAfter {
			t.Errorf("it is %v, and a copy may come until %d, not after %d", a.now(), a.grant.Late, a.notAfter)
		}
		s.answers <- held(7) // which was earlier
		hold := granted(t, waits)
		if hold.Token() != 9 {
			t.Errorf("token %d", hold.Token())
		}
		unlock(t, hold)
	})
}

// A client that may only publish can make an attempt look, and not keep it from looking.
func TestAMessageBringsTheNextLookForwardAndNeverPutsItOff(t *testing.T) {
	const look = time.Second + time.Millisecond
	for _, c := range []struct {
		messages []string
		at       time.Duration // when it asks again
	}{
		{nil, 36 * time.Second},
		{[]string{"1000"}, look},
		{[]string{"3600000"}, 36 * time.Second},
		{[]string{"1000", "3600000"}, look},
		{[]string{"3600000", "1000"}, look},
		{[]string{"1000", "none"}, time.Millisecond},
		{[]string{"1000", "-1"}, time.Millisecond},
	} {
		for _, standing := range []bool{false, true} { // when the messages come
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				m, q := newQueue(t, s)
				ctx, cancel := context.WithCancel(context.Background())
				waits := lock(t, m, ctx)
				attempt := attemptOf(t, q)
				if standing {
					s.answers <- "QB 1 60000 other:1 7\nme" // another session looks when the holder's lease is over
					synctest.Wait()
				}
				for _, message := range c.messages {
					q.table.inbox.Receive(attempt.owner() + " " + message)
				}
				if !standing {
					s.answers <- "QB 1 60000 other:1 7\nme"
				}
				s.got()
				start := time.Now()
				time.Sleep(40 * time.Second)
				if all := s.got(); len(all) == 0 || all[0].kind != "ask" || all[0].at.Sub(start) != c.at {
					t.Errorf("%q, standing before: %v: %+v, want it to ask after %v", c.messages, standing, all, c.at)
				}
				cancel()
				<-waits
			})
		}
	}
}

func TestTheLastMemberToLeaveGivesUpThePlace(t *testing.T) {
	for _, c := range []struct {
		state    attemptState
		requests string
	}{
		{asking, "ask release"}, // once it is answered: it may stand in the queue by then
		{standing, "ask release"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			m, q := newQueue(t, s)
			ctx, cancel := context.WithCancel(context.Background())
			waits := lock(t, m, ctx)
			attempt := attemptOf(t, q)
			if c.state == standing {
				s.answers <- held(7)
				synctest.Wait()
			}
			cancel()
			if c.state == asking {
				time.Sleep(wakeup.LeavingTime / 2) // Lock waits for the answer
				s.answers <- held(7)
			}
			if g := <-waits; !errors.Is(g.err, context.Canceled) {
				t.Errorf("%v: %v", c.state, g.err)
			}
			all := s.got()
			if kinds(all) != c.requests || all[1].owner != attempt.owner() || attempt.now() != over {
				t.Errorf("%v: %s; it is %v", c.state, kinds(all), attempt.now())
			}
		})
	}
}

func TestThoseWhoseGrantComesTooLateAskAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, q := newQueue(t, s)
		waits := lock(t, m, context.Background())
		former := attemptOf(t, q)
		s.answers <- held(7)
		synctest.Wait()
		q.deliver(former.owner(), award{token: 9, lease: time.Second, since: time.Now().Add(-time.Second)})
		all := s.got()
		if next := attemptOf(t, q); next == former || next.now() != asking || next.expired != 1 {
			t.Errorf("it is %v, after %d times", next.now(), next.expired)
		}
		released := slices.ContainsFunc(all, func(r request) bool { return r.kind == "release" && r.owner == former.owner() })
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

// The answer by which a message's time is known took long, so the lease of the grant may seem over when it is
// not.
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
			m, q := newQueue(t, s)
			waits := lock(t, m, context.Background())
			time.Sleep(3 * time.Second) // for which the answer is under way
			s.answers <- held(7)
			synctest.Wait()
			attempt := s.got()[0].owner
			q.deliver(attempt, award{token: 9, lease: 2 * time.Second, at: 1000001})
			if all := s.got(); kinds(all) != "ask" || all[0].owner != attempt {
				t.Fatalf("%s: %+v", c.what, all)
			}
			s.answers <- c.answer
			synctest.Wait()
			if !c.stands {
				hold := granted(t, waits)
				if hold.Token() != 9 || time.Until(hold.Deadline()) < q.S().Lease*9/10 {
					t.Errorf("token %d for %v", hold.Token(), time.Until(hold.Deadline()))
				}
				unlock(t, hold)
				return
			}
			if got := attemptOf(t, q); got.owner() != attempt || got.now() != standing {
				t.Errorf("%s: it is %v", c.what, got.now())
			}
			q.deliver(attempt, award{token: 12, lease: time.Minute, since: time.Now()})
			unlock(t, granted(t, waits))
		})
	}
}

// Else two of them would have each other ask without end.
func TestAnAnswerThatCameHasNoOthersAskThoughAnEarlierOneWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, q := newQueue(t, s)
		q.others = true // so that no goroutine waits for others to ask with
		ctx, cancel := context.WithCancel(bg)
		waits := []<-chan got{lock(t, m, ctx), lock(t, m, ctx)}
		for range waits {
			s.answers <- held(7)
			synctest.Wait()
		}
		s.got()
		q.Mu.Lock()
		for _, a := range q.standing {
			a.grant.Late = 1
		}
		q.standing[0].sooner(0)
		q.Mu.Unlock()
		for range waits {
			s.answers <- held(7)
		}
		if all := s.got(); kinds(all) != "ask" {
			t.Errorf("%s", kinds(all))
		}
		cancel()
		for _, c := range waits {
			<-c
		}
	})
}
