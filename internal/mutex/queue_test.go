package mutex

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// timing is the state of a queue, and when and how many ask then.
type timing struct {
	what                   string
	held, standing, others bool // by this session; another attempt of it waits; other sessions do
	expect                 int
	after                  time.Duration // they ask; negative: never
	size                   int
}

// run makes a queue of that state, lets f act on it, and checks what follows.
func (c timing) run(t *testing.T, f func(*Lock)) {
	t.Run(c.what, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			m, q := newQueue(t, s)
			if c.held {
				s.answers <- "G 1000000 7"
				defer unlock(t, granted(t, lock(t, m, context.Background())))
			}
			s.got()
			q.Mu.Lock()
			if c.standing {
				q.standing = []*attempt{{l: q, state: standing}}
			}
			q.others, q.expect = c.others, c.expect
			q.Mu.Unlock()
			start := time.Now()
			f(q)
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

// enqueueNow has a newcomer wait.
func (q *Lock) enqueueNow() {
	w := newWaiter(q, Config{})
	q.Mu.Lock()
	c := q.enqueue(w)
	q.Mu.Unlock()
	if c != nil {
		go c.runFirst()
	}
}

func TestThoseWhoMayAskTogetherWaitAMomentForEachOther(t *testing.T) {
	const between = formTime / 2 // the arrivals of two goroutines
	for _, c := range []timing{
		{what: "the lock seems free", after: 0, size: 1},
		{what: "others hold it", others: true, after: 0, size: 1},
		{what: "this session holds it", held: true, after: formTime, size: 2},
		{what: "and others wait, too", held: true, others: true, after: formTime, size: 2},
		{what: "this session waits already", standing: true, after: formLong, size: 2},
		{what: "it does, and others, too", standing: true, others: true, after: 0, size: 1},
		{what: "two had it, and may come back", expect: 2, after: between, size: 2},
		{what: "three had it", expect: 3, after: formTime, size: 2},
	} {
		c.run(t, func(q *Lock) {
			q.enqueueNow()
			time.Sleep(between)
			if synctest.Wait(); c.size == 2 {
				q.enqueueNow()
			}
		})
	}
}

func TestAnUnlockLetsTheNextAttemptAsk(t *testing.T) {
	const never = -1
	for _, told := range []bool{false, true} { // Redis
		other := timing{what: "others wait, too", others: true, after: formLong, size: 1}
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
			c.run(t, func(q *Lock) {
				q.S().Begin()
				defer q.S().End()
				q.Mu.Lock()
				defer q.Mu.Unlock()
				q.forming.Push(newWaiter(q, Config{}))
				q.unlocked(told)
			})
		}
	}
}

func TestTheNextAttemptAsksOnceTheOneBeforeItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, q := newQueue(t, s)
		q.others = true // so that no goroutine waits for others to ask with
		var waits []<-chan got
		for range 3 {
			waits = append(waits, lock(t, m, context.Background()))
		}
		if all := s.got(); kinds(all) != "ask" || all[0].size != 1 {
			t.Fatalf("%+v", all)
		}
		s.answers <- held(7)
		all := s.got()
		if kinds(all) != "ask" || all[0].size != 2 {
			t.Fatalf("%+v", all)
		}
		s.answers <- held(7)
		synctest.Wait()
		time.Sleep(3 * time.Second)
		q.deliver(all[0].owner, award{token: 19, lease: 2 * time.Second, at: 1000001}) // it seems over
		if all := s.got(); kinds(all) != "ask" || all[0].size != 2 {
			t.Errorf("%+v", all)
		}
		s.answers <- "G 9000000 19"
		for i, waits := range waits[1:] {
			hold := granted(t, waits)
			if hold.Token() != int64(19+i) {
				t.Errorf("number %d has token %d", i+2, hold.Token())
			}
			unlock(t, hold)
		}
		q.deliver(attemptOf(t, q).owner(), award{token: 2000, lease: time.Minute, since: time.Now()})
		unlock(t, granted(t, waits[0]))
	})
}
