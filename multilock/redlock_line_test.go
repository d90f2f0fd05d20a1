package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// A crew has members, each a process with one goroutine, that lock one RedLock again and again.
type crew struct {
	inside atomic.Int32
	turns  []atomic.Int32 // number of turns, by member
	wg     sync.WaitGroup
}

// start makes each member hold the lock for 10 ms, as many times as turns says.
func (r servers) start(t *testing.T, members, turns int, options ...rlock.SessionOption) *crew {
	c := &crew{turns: make([]atomic.Int32, members)}
	for i := range members {
		m := r.redLock(t, options...)
		c.wg.Go(func() {
			for range turns {
				if err := c.turn(m, i); err != nil {
					t.Errorf("member %d: %v", i, err)
					return
				}
			}
		})
	}
	return c
}

func (c *crew) turn(m *multilock.RedLock, i int) error {
	ctx, hold, err := m.Lock(bg)
	if err != nil {
		return err
	}
	if n := c.inside.Add(1); n != 1 {
		err = fmt.Errorf("%d hold the lock", n)
	}
	c.turns[i].Add(1)
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done(): // the hold was lost, and others may have the lock
	}
	c.inside.Add(-1)
	// If one server is down and another one is slow, Unlock returns an error at once.
	slow := func(err error) bool {
		return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED)
	}
	if lost := hold.Unlock(bg); lost != nil && !errors.Is(lost, rlock.ErrLost) && !slow(lost) {
		err = errors.Join(err, lost)
	}
	return err
}

// total returns how often the members have held the lock.
func (c *crew) total() (n int) {
	for i := range c.turns {
		n += int(c.turns[i].Load())
	}
	return n
}

// Proves: RedLock
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
		testlock.Eventually(t, "half of the turns are over", func() bool {
			return c.total() >= turns/2*members
		})
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
		if uneven > members/5 { // the first round of a Lock can get the lock before the waiters in line
			t.Errorf("%d of %d had more or fewer turns than most", uneven, members)
		}
		r.onlyTokens(t)
	})
}

// Proves: RedLock
func TestWaitersGoOnWithoutTheServerTheyStandAt(t *testing.T) {
	const members, turns, lease = 6, 4, 10 * time.Second
	for name, spoil := range map[string]func(*testlock.Wire){
		"killed": (*testlock.Wire).Kill,
		"frozen": func(w *testlock.Wire) { w.Net.Freeze() },
		"restarted, without its data": func(w *testlock.Wire) {
			w.Kill()
			time.Sleep(lease + lease/10) // longer than the longest lease, as docs/redlock.md demands
			w.Restart()
		},
		"without the line's data": func(w *testlock.Wire) {
			for _, key := range []string{"", ":q", ":w"} {
				w.Del(turnKey + key)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				c := r.start(t, members, turns, rlock.WithWatchdogTimeout(lease))
				at := -1
				testlock.Eventually(t, "they stand in line", func() bool {
					at = r.lineAt()
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

// queue locks x, and then starts n waiters for x, each in a new process. They are in the line in this order.
func (r servers) queue(t *testing.T, n int) (*rlock.Hold, []<-chan testlock.Grant, []context.CancelFunc) {
	var waiting []<-chan testlock.Grant
	var cancel []context.CancelFunc
	_, hold := testlock.Lock(t, r.redLock(t), bg)
	for i := range n {
		ctx, leave := context.WithCancel(bg)
		t.Cleanup(leave)
		waiting, cancel = append(waiting, testlock.Go(ctx, r.redLock(t))), append(cancel, leave)
		if r.lineAt() < 0 || r.inLine(t) != i {
			t.Fatalf("%d behind the first, want %d", r.inLine(t), i)
		}
	}
	return hold, waiting, cancel
}

// served waits until all these waiters have got the lock, in any order, and unlocks it for each of them.
func served(t *testing.T, waiting ...<-chan testlock.Grant) {
	t.Helper()
	late := time.After(testlock.Patience)
	for len(waiting) > 0 {
		waiting = slices.DeleteFunc(waiting, func(got <-chan testlock.Grant) bool {
			select {
			case g := <-got:
				testlock.Must(t, g.Err)
				testlock.Unlock(t, g.Hold)
				return true
			case <-late:
				t.Fatalf("%d still wait", len(waiting))
			case <-time.After(time.Millisecond):
			}
			return false
		})
	}
}

func TestThoseInLineAreServedInTheirOrder(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		hold, waiting, _ := r.queue(t, 5)
		start := time.Now()
		testlock.Unlock(t, hold)
		for i, got := range waiting {
			synctest.Wait()
			for _, later := range waiting[i+1:] {
				if len(later) > 0 {
					t.Errorf("one that came after %d is served before", i)
				}
			}
			testlock.Unlock(t, testlock.Granted(t, got))
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestThoseInLineGoOnAtTheNextServer(t *testing.T) {
	for name, spoil := range map[string]func(*testlock.Wire){
		"killed": (*testlock.Wire).Kill, "frozen": func(w *testlock.Wire) { w.Net.Freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				hold, waiting, _ := r.queue(t, 5)
				at := r.lineAt()
				spoil(r[at])
				time.Sleep(10 * time.Second)
				others := slices.Delete(slices.Clone(r), at, at+1)
				// The first waiter waits in the queues of the lock, and has left the line.
				if others.lineAt() < 0 || others.inLine(t) != 3 {
					t.Errorf("%d stand behind the first at another server", others.inLine(t))
				}
				start := time.Now()
				testlock.Unlock(t, hold)
				served(t, waiting...)
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// apart returns the sessions of a new process, and its network to each server. A test can break this network
// without affecting other processes.
func (r servers) apart(t *testing.T) (all []*rlock.Session, own []*faultproxy.Proxy) {
	for _, w := range r {
		own = append(own, faultproxy.InMemory(t, w.Dial))
		all = append(all, testlock.NewSession(t, own[len(own)-1].Client(t)))
	}
	return all, own
}

// One process holds the lock, and another one waits at the head of the line. The others wait behind it. Then
// the network of the process at the head fails. Proves: RedLock
func TestAHeadOfTheLineThatIsGoneDoesNotStopTheOthers(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		_, hold := testlock.Lock(t, r.redLock(t), bg)
		all, own := r.apart(t)
		ctx, cancel := context.WithCancel(bg)
		head := testlock.Go(ctx, testlock.RedLock("x", all...))
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
		if took := time.Since(gone); took > 7500*time.Millisecond { // half of the RedLock's lease
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
		for _, i := range []int{1, 0} { // the waiter behind the head, then the head
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
		mine := testlock.Go(bg, m) // a goroutine of the holder's process
		synctest.Wait()
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, mine))
		synctest.Wait()
		for i, w := range r {
			if slices.ContainsFunc(w.Keys(), func(key string) bool {
				return strings.HasPrefix(key, turnKey)
			}) {
				t.Errorf("server %d: %q", i, w.Keys())
			}
		}
	})
}

// Otherwise the former holder could take the lock again before the waiters are notified of the release.
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

// A release publishes messages only if somebody waits. Waiters in the line and at its head send no requests
// except heartbeats, and a release wakes them at once. Proves: wake-ups
func TestAReleaseOfARedLockIsPublishedWhereOneWaits(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		forEver := rlock.WithWatchdogTimeout(24 * time.Hour) // so that no lease ends during the test
		m, other := r.redLock(t, forEver), r.redLock(t, forEver)
		told := func() (n int) {
			synctest.Wait()
			for _, w := range r {
				n += w.Net.CountPushed()
			}
			r.reset()
			return n
		}
		_, hold := testlock.Lock(t, m, bg)
		_, _, err := other.TryLock(bg)
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		testlock.Unlock(t, hold)
		if n := told(); n > 0 {
			t.Errorf("nobody waits: %d messages", n)
		}
		_, hold = testlock.Lock(t, m, bg)
		got := testlock.Go(bg, other)
		time.Sleep(time.Minute)
		behind := testlock.Go(bg, r.redLock(t, forEver))
		time.Sleep(time.Minute)
		told()
		const places, beat = 5, 6 * time.Second // three of the head at the servers, and two in the line
		time.Sleep(10 * time.Minute)
		if asked, told := r.count("acquire"), told(); asked > places*int(10*time.Minute/beat+1) || told > 0 {
			t.Errorf("nothing has happened: those that wait have asked %d times, and were told %d times",
				asked, told)
		}
		start := time.Now()
		testlock.Unlock(t, hold)
		hold = testlock.Granted(t, got)
		if took := time.Since(start); took > 0 || told() < 2 {
			t.Errorf("it has the lock after %v", took)
		}
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, behind))
		if took := time.Since(start); took > 0 || r.held() > 0 {
			t.Errorf("the other one after %v", took)
		}
	})
}

// Two processes give their sessions in different orders, so they wait in different lines. Each process is
// first in the queues of two of five servers, and the fifth is down.
func TestTwoHeadsOfDifferentLinesDoNotBlockEachOther(t *testing.T) {
	withServers(t, 5, func(t *testing.T, r servers) {
		r[4].Net.Refuse(true)
		_, hold := testlock.Lock(t, r.redLock(t), bg)
		slow := func(q *faultproxy.Request) faultproxy.Action {
			// ARGV[7] is not 0, so this attempt waits in the queue.
			if testlock.Script(q.Script()) == "acquire" && q.Args[3] == redKey && q.Args[12] != "0" {
				time.Sleep(20 * time.Millisecond)
			}
			return faultproxy.Pass
		}
		here, ours := r[:4].apart(t)
		there, theirs := r[:4].apart(t)
		for _, p := range []*faultproxy.Proxy{ours[0], ours[1], theirs[2], theirs[3]} {
			p.OnRequest(slow)
		}
		slices.Reverse(there)
		one := testlock.Go(bg, testlock.RedLock("x",
			append(here, testlock.NewSession(t, r[4].Net.Client(t)))...))
		two := testlock.Go(bg, testlock.RedLock("x",
			append(there, testlock.NewSession(t, r[4].Net.Client(t)))...))
		time.Sleep(time.Second)
		testlock.Unlock(t, hold)
		synctest.Wait()
		if now := r[:4].holders(); now[0] == "" || now[1] != now[0] || now[2] == "" || now[3] != now[2] ||
			now[0] == now[3] {
			t.Errorf("held by %q", now)
		}
		start := time.Now()
		served(t, one, two)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// If all servers refuse the line, waiters make rounds without it. Each refusal is logged.
func TestALineThatIsRefusedIsLoggedAndTheLockWorks(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		log := new(testlock.Log)
		logger := rlock.WithLogger(log.Logger())
		for _, w := range r {
			testlock.Must(t, w.Set(turnKey, "precious"))
		}
		_, hold := testlock.Lock(t, r.redLock(t), bg)
		var waiting []<-chan testlock.Grant
		for range 3 {
			waiting = append(waiting, testlock.Go(bg, r.redLock(t, logger)))
			synctest.Wait()
		}
		if time.Sleep(time.Second); log.Count("cannot queue on a server") != 9 ||
			log.Count(r[0].Net.Addr()) != 3 {
			t.Error(log)
		}
		testlock.Unlock(t, hold)
		served(t, waiting...)
	})
}
