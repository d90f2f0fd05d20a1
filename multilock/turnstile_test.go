package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// crew is sessions, each with one goroutine, that want one RedLock again and again.
type crew struct {
	inside atomic.Int32
	turns  []atomic.Int32 // of each
	wg     sync.WaitGroup
}

// start has each member take the lock so many times, for 10 ms each time.
func (r servers) start(t *testing.T, members, turns int, options ...rlock.SessionOption) *crew {
	c := &crew{turns: make([]atomic.Int32, members)}
	for i := range members {
		m := r.redLock(t, options...)
		c.wg.Go(func() {
			for range turns {
				if err := c.turn(t, m, i); err != nil {
					t.Errorf("member %d: %v", i, err)
					return
				}
			}
		})
	}
	return c
}

func (c *crew) turn(t *testing.T, m *rlock.Mutex, i int) error {
	ctx, hold, err := m.Lock(bg)
	// Where one server is down, and another one is slow, a newcomer is told so at once, and so is an Unlock.
	slow := func(err error) bool {
		return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED)
	}
	for slow(err) {
		ctx, hold, err = m.Lock(bg)
	}
	if err != nil {
		return err
	}
	if n := c.inside.Add(1); n != 1 {
		err = fmt.Errorf("%d hold the lock", n)
	}
	c.turns[i].Add(1)
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done(): // the lease is over, and others may hold it
	}
	c.inside.Add(-1)
	if lost := hold.Unlock(bg); lost != nil && !errors.Is(lost, rlock.ErrLost) && !slow(lost) {
		err = errors.Join(err, lost)
	}
	return err
}

// total is how often the lock was had.
func (c *crew) total() (n int) {
	for i := range c.turns {
		n += int(c.turns[i].Load())
	}
	return n
}

func TestManyClientsAreServedInTurnWithFewRequests(t *testing.T) {
	const members, turns, most = 20, 6, 5
	withServers(t, 3, func(t *testing.T, r servers) {
		for _, w := range r {
			w.Net.SetDelay(time.Millisecond)
		}
		c := r.start(t, members, turns)
		testlock.Eventually(t, "all have had a turn", func() bool { return c.total() >= 2*members })
		r.reset()
		from := c.total()
		testlock.Eventually(t, "half of the turns are over", func() bool { return c.total() >= turns/2*members })
		uneven := 0
		for i := range c.turns {
			if n := c.turns[i].Load(); n < turns/2-1 || n > turns/2+1 {
				uneven++
			}
		}
		testlock.Eventually(t, "most turns are over", func() bool { return c.total() >= (turns-1)*members })
		perCycle := float64(r.count()) / float64(c.total()-from) / 3
		c.wg.Wait()
		if perCycle > most {
			t.Errorf("%.1f scripts per server and cycle, over %d", perCycle, most)
		}
		if uneven > members/5 { // some, as a first vote is not in line
			t.Errorf("%d of %d had more or fewer turns than most", uneven, members)
		}
		r.onlyTokens(t)
	})
}

func TestWaitersGoOnWithoutTheServerTheyStandAt(t *testing.T) {
	const members, turns, lease = 6, 4, 10 * time.Second
	for name, spoil := range map[string]func(*testlock.Wire){
		"killed": (*testlock.Wire).Kill,
		"frozen": func(w *testlock.Wire) { w.Net.Freeze() },
		"restarted, without its data": func(w *testlock.Wire) {
			w.Kill()
			time.Sleep(lease + lease/10) // as the documentation demands
			w.Restart()
		},
		"without the line's data": func(w *testlock.Wire) {
			for _, key := range []string{"", ":t", ":q", ":a", ":d"} {
				w.Del(turnKey + key)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				c := r.start(t, members, turns, rlock.WithWatchdogTimeout(lease))
				at := -1
				testlock.Eventually(t, "they stand in line", func() bool {
					at = r.turnstileAt()
					return at >= 0 && c.total() > members
				})
				spoil(r[at])
				c.wg.Wait()
				if n := c.total(); n != members*turns {
					t.Errorf("%d turns", n)
				}
				r[at].Net.Thaw()
			})
		})
	}
}

// queue holds x, and has others wait for it in a line, each in a process of its own.
func (r servers) queue(t *testing.T, n int) (hold *rlock.Hold, waiting []<-chan testlock.Grant, cancel []context.CancelFunc) {
	_, hold = testlock.Lock(t, r.redLock(t), bg)
	for i := range n {
		ctx, leave := context.WithCancel(bg)
		t.Cleanup(leave)
		waiting, cancel = append(waiting, testlock.Go(ctx, r.redLock(t))), append(cancel, leave)
		if r.turnstileAt() < 0 || r.inLine(t) != i {
			t.Fatalf("%d behind the first, want %d", r.inLine(t), i)
		}
	}
	return hold, waiting, cancel
}

// One process holds the lock, one waits at the head of the line, and others wait behind it, each with its clients.
func TestAHeadOfTheLineThatIsGoneDoesNotStopTheOthers(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.redLock(t), bg)
		var own []*faultproxy.Proxy // before the servers, for one process alone
		var all []*rlock.Session
		for _, w := range r {
			own = append(own, faultproxy.InMemory(t, w.Dial))
			all = append(all, testlock.NewSession(t, own[len(own)-1].Client(t)))
		}
		ctx, cancel := context.WithCancel(bg)
		head := testlock.Go(ctx, multilock.NewRedLock("x", all...))
		synctest.Wait()
		var others []<-chan testlock.Grant
		for range 3 {
			others = append(others, testlock.Go(bg, r.redLock(t)))
			synctest.Wait()
		}
		for _, p := range own {
			p.BlackHole(true, true)
		}
		gone := time.Now()
		testlock.Unlock(t, hold)
		for _, got := range others {
			testlock.Unlock(t, testlock.Granted(t, got))
		}
		if took := time.Since(gone); took > 15*time.Second { // half of the RedLock's lease
			t.Errorf("they waited for %v for one that is gone", took)
		}
		cancel()
		testlock.WantError(t, "the head", (<-head).Err, context.Canceled)
		for _, p := range own {
			p.BlackHole(false, false)
		}
	})
}

func TestOneThatGivesUpLeavesNothingInTheLine(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		hold, waiting, cancel := r.queue(t, 3)
		for _, i := range []int{1, 0} { // one behind the head, then the head
			cancel[i]()
			g := <-waiting[i]
			if !errors.Is(g.Err, context.Canceled) || !strings.Contains(g.Err.Error(), "locked by ") {
				t.Errorf("%v", g.Err)
			}
			if n := r.inLine(t); n != i {
				t.Errorf("%d behind the first, want %d", n, i)
			}
		}
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, waiting[2]))
		r.onlyTokens(t)
	})
}

func TestOneThatIsNotRefusedNeverStandsInLine(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		hold := testlock.Take(t, m)
		_, _, err := r.redLock(t).TryLock(bg)
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		testlock.Unlock(t, hold)
		synctest.Wait()
		for i, w := range r {
			if slices.ContainsFunc(w.Keys(), func(key string) bool { return strings.HasPrefix(key, turnKey) }) {
				t.Errorf("server %d: %q", i, w.Keys())
			}
		}
	})
}

// It would take the lock again before the others are told of the release.
func TestOneThatComesBackAtOnceDoesNotPassThoseThatWait(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		for _, w := range r {
			w.Net.SetDelay(time.Millisecond)
		}
		greedy := r.redLock(t)
		_, hold := testlock.Lock(t, greedy, bg)
		got := testlock.Go(bg, r.redLock(t))
		time.Sleep(time.Second)
		for n := 0; ; n++ {
			if n > 3 {
				t.Fatalf("it was passed %d times", n)
			}
			testlock.Unlock(t, hold)
			next := testlock.Go(bg, greedy)
			select {
			case g := <-got:
				testlock.Must(t, g.Err)
				testlock.Unlock(t, g.Hold)
				testlock.Unlock(t, testlock.Granted(t, next))
				return
			case g := <-next:
				testlock.Must(t, g.Err)
				hold = g.Hold
			}
		}
	})
}

// The release is not waited for before the next in line is told.
func TestTheNextInLineIsToldWhileTheReleaseIsUnderWay(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.redLock(t), bg)
		mine := testlock.Go(bg, r.redLock(t, rlock.WithStreak(0)))
		synctest.Wait()
		next := testlock.Go(bg, r.redLock(t))
		synctest.Wait()
		testlock.Unlock(t, hold)
		hold = testlock.Granted(t, mine)
		const slow = 50 * time.Millisecond // before 100 ms it would be told in any case
		line := testlock.Scripts(fairlock.New(nil, "x"))
		start, told := time.Now(), make(chan time.Duration, 10)
		for _, w := range r {
			w.Net.OnRequest(func(q *faultproxy.Request) faultproxy.Action {
				switch {
				case q.Script() == redDigests["release"]:
					time.Sleep(slow)
				case line[q.Script()] == "release":
					told <- time.Since(start)
				}
				return faultproxy.Pass
			})
		}
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, next))
		if after := <-told; after >= slow {
			t.Errorf("the next in line was told after %v", after)
		}
		time.Sleep(time.Second)
	})
}

func TestAReleaseOfARedLockIsPublishedWhereOneWaits(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		forEver := rlock.WithWatchdogTimeout(24 * time.Hour) // one that waits looks after hours, if it is not told
		m, other := r.redLock(t, forEver), r.redLock(t, forEver)
		var heard []*redis.PubSub
		for _, w := range r {
			heard = append(heard, w.Client.Subscribe(bg, redKey))
			t.Cleanup(func() { _ = heard[len(heard)-1].Close() })
		}
		told := func() (n []int) {
			synctest.Wait()
			for _, w := range r {
				n = append(n, len(slices.DeleteFunc(w.Net.Pushed(), func(m faultproxy.Message) bool { return m.Channel != redKey })))
				w.Net.Reset()
			}
			return n
		}
		_, hold := testlock.Lock(t, m, bg)
		_, _, err := other.TryLock(bg)
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		testlock.Unlock(t, hold)
		if n := told(); slices.Max(n) > 0 {
			t.Errorf("nobody waits: %d messages", n)
		}
		_, hold = testlock.Lock(t, m, bg)
		got := testlock.Go(bg, other)
		time.Sleep(time.Minute)
		told()
		start := time.Now()
		testlock.Unlock(t, hold)
		hold = testlock.Granted(t, got)
		if took := time.Since(start); took > time.Second {
			t.Errorf("it has the lock after %v", took)
		}
		if n := told(); slices.Sorted(slices.Values(n))[1] == 0 { // one may not know of the waiter: its answer was not needed
			t.Errorf("less than a majority told of it: %d messages", n)
		}
		testlock.Unlock(t, hold)
	})
}

// Where the servers' clocks are behind the tokens, the first that is above the last one used is known by the message of
// the release.
func TestTheMessageOfAReleaseSparesASecondRound(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		a, b := r.warm(t, longStreak), r.warm(t)
		for _, w := range r { // a client whose servers' clocks are ahead was there
			w.HSet(redMemory, "t", strconv.FormatInt(micro(time.Hour), 10), "b", "somebody:1")
		}
		for _, m := range []*rlock.Mutex{a, b} { // each learns it by a second round
			testlock.Works(t, m)
			synctest.Wait()
		}
		for _, w := range r {
			w.Net.SetDelay(time.Millisecond)
		}
		_, hold := testlock.Lock(t, a, bg)
		got := testlock.Go(bg, b)
		time.Sleep(2 * time.Second)
		for range 10 { // the other has seen the first token, and proposes a higher one each time
			after := testlock.Go(bg, a)
			synctest.Wait()
			testlock.Unlock(t, hold) // handed on in memory
			next := testlock.Granted(t, after)
			if next.Token() != hold.Token()+1 {
				t.Errorf("token %d after %d: not handed on", next.Token(), hold.Token())
			}
			hold = next
		}
		r.reset()
		testlock.Unlock(t, hold)
		next := testlock.Granted(t, got)
		if n := r.count("accept"); n > 0 {
			t.Errorf("%d requests of a second round", n)
		}
		if next.Token() <= hold.Token() || next.Token() > hold.Token()+1000 { // a block, if the servers have not heard of the last one yet
			t.Errorf("token %d after %d", next.Token(), hold.Token())
		}
		testlock.Unlock(t, next)
	})
}
