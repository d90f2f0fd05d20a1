package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

const (
	turnKey   = "lockline:t:{x}"
	turnQueue = turnKey + ":q"
)

// crewTimeout is the time-out for a server: this machine has much to do.
const crewTimeout = 700 * time.Millisecond

// crew is sessions, each with one goroutine, that want one RedLock again and again.
type crew struct {
	inside atomic.Int32
	turns  []atomic.Int32 // of each
	wg     sync.WaitGroup
	errs   chan error
}

// start has each member take the lock so many times, for stay each time.
func (r *redServers) start(t *testing.T, members, turns int, stay time.Duration, options ...rlock.SessionOption) *crew {
	c := &crew{turns: make([]atomic.Int32, members), errs: make(chan error, members)}
	locks := make([]*rlock.Mutex, members)
	for i := range locks {
		q, err := multilock.NewQuorum(r.client(t, options...), multilock.WithServerTimeout(crewTimeout))
		testlock.Must(t, err)
		locks[i] = q.New("x")
	}
	for i, m := range locks { // at once, so that nobody has turns before all are there
		c.wg.Go(func() {
			for range turns {
				if err := c.turn(t, m, i, stay); err != nil {
					c.errs <- fmt.Errorf("member %d: %w", i, err)
					return
				}
			}
		})
	}
	return c
}

func (c *crew) turn(t *testing.T, m *rlock.Mutex, i int, stay time.Duration) error {
	ctx, hold, err := m.Lock(testlock.Bounded(t))
	// Where one server is frozen or refuses connections, and another one is slow, a newcomer is told so at once, and so is an Unlock.
	slow := func(err error) bool {
		return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, new(*net.OpError))
	}
	for slow(err) {
		ctx, hold, err = m.Lock(testlock.Bounded(t))
	}
	if err != nil {
		return err
	}
	if n := c.inside.Add(1); n != 1 {
		err = fmt.Errorf("%d hold the lock", n)
	}
	c.turns[i].Add(1)
	select {
	case <-time.After(stay):
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

// done waits until all have had their turns.
func (c *crew) done(t *testing.T) {
	t.Helper()
	c.wg.Wait()
	close(c.errs)
	for err := range c.errs {
		t.Error(err)
	}
}

// scripts is how often clients have called scripts on all servers.
func (r *redServers) scripts(t *testing.T) (n int) {
	t.Helper()
	for _, c := range r.direct {
		n += calls(t, c, "eval", "evalsha")
	}
	return n
}

// calls is how often clients and scripts have called some commands on a server.
func calls(t testing.TB, c *redis.Client, commands ...string) (n int) {
	t.Helper()
	stats, err := c.Info(bg, "commandstats").Result()
	testlock.Must(t, err)
	for line := range strings.Lines(stats) {
		for _, command := range commands {
			var calls int
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":"); ok {
				_, err := fmt.Sscanf(rest, "calls=%d,", &calls)
				testlock.Must(t, err)
				n += calls
			}
		}
	}
	return n
}

// published is how many messages each server has sent.
func (r *redServers) published(t *testing.T) (n []int) {
	t.Helper()
	for _, c := range r.direct {
		n = append(n, calls(t, c, "publish"))
	}
	return n
}

// noted is how many servers have noted that somebody waits for the holder's release.
func (r *redServers) noted(t testing.TB) (n int) {
	t.Helper()
	for _, c := range r.direct {
		if c.HExists(bg, r.key, "w").Val() {
			n++
		}
	}
	return n
}

func TestAReleaseOfARedLockIsPublishedWhereOneWaits(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	newQuorum := func() *multilock.Quorum { // of which those that wait look every 20 minutes, if they are not told
		q, err := multilock.NewQuorum(r.client(t, rlock.WithWatchdogTimeout(time.Hour)), multilock.WithServerTimeout(time.Minute))
		testlock.Must(t, err)
		return q
	}
	one, other := newQuorum(), newQuorum()
	for i := range 10 {
		name := r.another(i)
		hold := testlock.Take(t, one.New(name))
		r.everywhere(t)
		_, _, err := other.New(name).TryLock(bg)
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		testlock.Unlock(t, hold)
		r.free(t)
	}
	if n := r.published(t); slices.Max(n) > 0 {
		t.Errorf("nobody waits: %d messages", n)
	}
	for i := range 5 {
		name, before := r.another(10+i), r.published(t)
		hold := testlock.Take(t, one.New(name))
		r.everywhere(t)
		got := testlock.Go(testlock.Bounded(t), other.New(name))
		testlock.Eventually(t, "it waits for a message", func() bool { // rather than in line, or for its subscription
			n := r.scripts(t)
			<-time.After(50 * time.Millisecond)
			return r.noted(t) == 3 && r.heard(t) == 3 && r.scripts(t) == n
		})
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, got))
		r.free(t)
		for i, n := range r.published(t) {
			if n == before[i] {
				t.Errorf("server %d told nobody", i)
			}
		}
	}
}

// Where the servers' clocks are behind the tokens, the first that is above the last one used is known by the message of the release.
func TestTheMessageOfAReleaseSparesASecondRound(t *testing.T) {
	r := startServers(t, 3)
	proxies, clients := r.proxied(t)
	waits := make(testlock.Waits, 10)
	newQuorum := func(all []*rlock.Session) *multilock.Quorum { // of which those that wait look every 20 minutes, if they are not told
		q, err := multilock.NewQuorum(all, multilock.WithServerTimeout(time.Minute))
		testlock.Must(t, err)
		return q
	}
	lease := rlock.WithWatchdogTimeout(time.Hour)
	one, other := newQuorum(r.client(t, lease, longStreak, rlock.WithObserver(waits))), newQuorum(sessions(t, clients, lease))
	warmed(t, other.New("x"))
	accept := scriptFile(t, "redlock_accept.lua")
	const turns = 5
	second := 0 // turns with a second round
	for i := range turns {
		name := r.another(i)
		a, b := one.New(name), other.New(name)
		for _, c := range r.direct { // a client whose servers' clocks are ahead was there
			testlock.Must(t, c.HSet(bg, r.key+":t", "t", time.Now().Add(time.Duration(1+i)*time.Hour).UnixMicro(), "b", "somebody:1").Err())
		}
		for _, m := range []*rlock.Mutex{a, b} { // each learns it by a second round
			hold := testlock.Take(t, m)
			r.everywhere(t)
			testlock.Unlock(t, hold)
			r.free(t)
		}
		hold := testlock.Take(t, a)
		r.everywhere(t)
		got := testlock.Go(testlock.Bounded(t), b)
		testlock.Eventually(t, "the other waits for a message", func() bool {
			n := r.scripts(t)
			<-time.After(200 * time.Millisecond)
			return r.noted(t) == 3 && r.heard(t) == 3 && r.scripts(t) == n
		})
		for range 10 { // the other has seen the first token, and proposes a higher one each time
			after := testlock.Go(bg, a)
			<-waits
			testlock.Unlock(t, hold) // handed on in memory
			next := testlock.Granted(t, after)
			if next.Token() != hold.Token()+1 {
				t.Errorf("token %d after %d: not handed on", next.Token(), hold.Token())
			}
			hold = next
		}
		for _, p := range proxies {
			p.Reset()
		}
		testlock.Unlock(t, hold)
		next := testlock.Granted(t, got)
		if slices.ContainsFunc(proxies, func(p *faultproxy.Proxy) bool {
			return slices.ContainsFunc(p.Requests(), func(q faultproxy.Request) bool { return q.Script() == accept })
		}) {
			second++
		}
		if next.Token() <= hold.Token() || next.Token() > hold.Token()+10 {
			t.Errorf("token %d after %d", next.Token(), hold.Token())
		}
		testlock.Unlock(t, next)
	}
	if second > turns/2 { // one is possible where a request was under way when the lock was released; else each turn has one
		t.Errorf("%d of %d turns had a second round", second, turns)
	}
}

func TestManyClientsAreServedInTurnWithFewRequests(t *testing.T) {
	const members, turns, most = 40, 6, 5
	r := startServers(t, 3)
	c := r.start(t, members, turns, 10*time.Millisecond)
	testlock.Eventually(t, "all have had a turn", func() bool { return c.total() >= 2*members })
	before, from := r.scripts(t), c.total()
	testlock.Eventually(t, "half of the turns are over", func() bool { return c.total() >= turns/2*members })
	uneven := 0
	for i := range c.turns {
		if n := c.turns[i].Load(); n < turns/2-1 || n > turns/2+1 {
			uneven++
		}
	}
	testlock.Eventually(t, "most turns are over", func() bool { return c.total() >= (turns-1)*members })
	scripts, cycles := r.scripts(t)-before, c.total()-from
	c.done(t)
	perCycle := float64(scripts) / float64(cycles) / 3
	t.Logf("%.1f scripts per server and cycle, %d had more or fewer turns than most", perCycle, uneven)
	if perCycle > most {
		t.Errorf("%.1f scripts per server and cycle, over %d", perCycle, most)
	}
	if uneven > members/5 { // some, as a first vote is not in line
		t.Errorf("%d of %d had more or fewer turns than most", uneven, members)
	}
	for _, rdb := range r.direct {
		testlock.OnlyTokens(t, rdb)
	}
}

// turnstileAt is the number of the server with the turnstile, if there is one.
func (r *redServers) turnstileAt(t testing.TB) int {
	t.Helper()
	return slices.IndexFunc(r.direct, func(c *redis.Client) bool { return c.Exists(bg, turnKey).Val() > 0 })
}

func TestWaitersGoOnWithoutTheServerTheyStandAt(t *testing.T) {
	const members, turns, lease = 12, 4, 2 * time.Second
	for name, spoil := range map[string]func(t *testing.T, r *redServers, at int){
		"killed": func(_ *testing.T, r *redServers, at int) { r.servers[at].Kill() },
		"frozen": func(t *testing.T, r *redServers, at int) {
			r.servers[at].Freeze()
			t.Cleanup(r.servers[at].Thaw)
		},
		"restarted, without its data": func(t *testing.T, r *redServers, at int) {
			r.servers[at].Kill()
			time.Sleep(lease + lease/10) // as the documentation demands
			r.servers[at].Restart(t)
		},
		"without the turnstile's data": func(t *testing.T, r *redServers, at int) {
			testlock.Must(t, r.direct[at].Del(bg, turnKey, turnKey+":t", turnQueue, turnKey+":a", turnKey+":d").Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startServers(t, 3)
			c := r.start(t, members, turns, 10*time.Millisecond, rlock.WithWatchdogTimeout(lease))
			at := -1
			testlock.Eventually(t, "they stand in line", func() bool {
				at = r.turnstileAt(t)
				return at >= 0 && c.total() > members
			})
			spoil(t, r, at)
			c.done(t)
			if n := c.total(); n != members*turns {
				t.Errorf("%d turns", n)
			}
		})
	}
}

// inLine is how many stand in line behind the first, on any server.
func (r *redServers) inLine(t testing.TB) (n int) {
	t.Helper()
	for _, c := range r.direct {
		n += int(c.ZCard(bg, turnQueue).Val())
	}
	return n
}

// One process holds the lock, one waits at the head of the line, and others wait behind it, each with its clients.
func TestAHeadOfTheLineThatIsGoneDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	hold := testlock.Take(t, patient(t, r.client(t))) // for 30 s
	proxies, clients := r.proxied(t)
	ctx, cancel := context.WithCancel(bg)
	head := testlock.Go(ctx, patient(t, sessions(t, clients)))
	testlock.Eventually(t, "the head", func() bool { return r.turnstileAt(t) >= 0 })
	var others []<-chan testlock.Grant
	for range 3 {
		others = append(others, testlock.Go(testlock.Bounded(t), patient(t, r.client(t))))
	}
	testlock.Eventually(t, "the others", func() bool { return r.inLine(t) == 3 })
	for _, p := range proxies {
		p.BlackHole(true, true)
	}
	gone := time.Now()
	testlock.Unlock(t, hold)
	for len(others) > 0 {
		i := slices.IndexFunc(others, func(c <-chan testlock.Grant) bool { return len(c) > 0 })
		if i < 0 {
			if time.Since(gone) > 15*time.Second { // half of the RedLock's lease
				t.Fatalf("%d wait for one that is gone", len(others))
			}
			time.Sleep(time.Millisecond)
			continue
		}
		testlock.Unlock(t, testlock.Granted(t, others[i]))
		others = slices.Delete(others, i, i+1)
	}
	t.Logf("after %v", time.Since(gone))
	cancel()
	if g := <-head; !errors.Is(g.Err, context.Canceled) {
		t.Errorf("the head: %v", g.Err)
	}
	for _, p := range proxies {
		p.BlackHole(false, false)
	}
}

func TestOneThatGivesUpLeavesNothingInTheLine(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	hold := testlock.Take(t, patient(t, r.client(t)))
	var cancels []func()
	var waiting []<-chan testlock.Grant
	for range 3 {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		cancels = append(cancels, cancel)
		waiting = append(waiting, testlock.Go(ctx, patient(t, r.client(t))))
		testlock.Eventually(t, "it stands in line", func() bool { return r.turnstileAt(t) >= 0 && r.inLine(t) == len(waiting)-1 })
	}
	for _, i := range []int{1, 0} { // one behind the head, then the head
		cancels[i]()
		g := <-waiting[i]
		if !errors.Is(g.Err, context.Canceled) || !strings.Contains(g.Err.Error(), "locked by ") {
			t.Errorf("%v", g.Err)
		}
		testlock.Eventually(t, "it has left", func() bool { return r.inLine(t) == i })
	}
	testlock.Unlock(t, hold)
	testlock.Unlock(t, testlock.Granted(t, waiting[2]))
	for _, c := range r.direct {
		testlock.OnlyTokens(t, c)
	}
}

func TestOneThatIsNotRefusedNeverStandsInLine(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	m, other := patient(t, r.client(t)), patient(t, r.client(t))
	for range 10 {
		testlock.Works(t, m)
	}
	hold := testlock.Take(t, m)
	_, _, err := other.TryLock(bg)
	testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
	testlock.Unlock(t, hold)
	for i, c := range r.direct {
		keys, err := c.Keys(bg, turnKey+"*").Result()
		testlock.Must(t, err)
		if len(keys) > 0 {
			t.Errorf("server %d: %q", i, keys)
		}
	}
}

// It would take the lock again before the others are told of the release.
func TestOneThatComesBackAtOnceDoesNotPassThoseThatWait(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	greedy, other := patient(t, r.client(t)), patient(t, r.client(t))
	hold := testlock.Take(t, greedy)
	got := testlock.Go(testlock.Bounded(t), other)
	testlock.Eventually(t, "it waits", func() bool { return r.turnstileAt(t) >= 0 })
	for r.heard(t) < len(r.direct) {
		time.Sleep(time.Millisecond)
	}
	for n := 0; len(got) == 0; n++ {
		if n > 3 {
			t.Fatalf("it was passed %d times", n)
		}
		testlock.Unlock(t, hold)
		next := testlock.Go(testlock.Bounded(t), greedy)
		testlock.Eventually(t, "one has it", func() bool { return len(next)+len(got) > 0 })
		if len(got) > 0 {
			testlock.Unlock(t, testlock.Granted(t, got))
			testlock.Unlock(t, testlock.Granted(t, next))
			return
		}
		hold = testlock.Granted(t, next)
	}
}

// heard is how many servers have somebody who listens to the lock's channel.
func (r *redServers) heard(t testing.TB) (n int) {
	t.Helper()
	for _, c := range r.direct {
		subs, err := c.PubSubNumSub(bg, r.key).Result()
		testlock.Must(t, err)
		n += int(min(subs[r.key], 1))
	}
	return n
}

// Rights to a RedLock's own keys were enough once. Without the turnstile's, those who wait vote as they can.
func TestWithoutRightsToTheTurnstileARedLockWorks(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	members := func() *rlock.Mutex {
		var clients []*redis.Client
		for _, s := range r.servers {
			clients = append(clients, testlock.User(t, s, "user", "~lockline:q:*", "&lockline:*", "+@all"))
		}
		return multilock.NewRedLock("x", sessions(t, clients)...)
	}
	hold := testlock.Take(t, members())
	var waiting []<-chan testlock.Grant
	for range 2 {
		waiting = append(waiting, testlock.Go(testlock.Bounded(t), members()))
	}
	testlock.Eventually(t, "they listen", func() bool { return r.heard(t) == 3 })
	testlock.Unlock(t, hold)
	for len(waiting) > 0 {
		testlock.Eventually(t, "one has it", func() bool {
			return slices.ContainsFunc(waiting, func(c <-chan testlock.Grant) bool { return len(c) > 0 })
		})
		i := slices.IndexFunc(waiting, func(c <-chan testlock.Grant) bool { return len(c) > 0 })
		testlock.Unlock(t, testlock.Granted(t, waiting[i]))
		waiting = slices.Delete(waiting, i, i+1)
	}
	if at := r.turnstileAt(t); at >= 0 {
		t.Errorf("server %d has a turnstile", at)
	}
}
