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
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

const (
	redKey    = "lockline:q:{x}"
	redMemory = "lockline:q:{x}:t"
)

// redServers are independent servers, each with a client that no test breaks.
type redServers struct {
	servers []*testredis.Server
	direct  []*redis.Client
	key     string // of the lock
}

func startServers(t testing.TB, n int, args ...string) *redServers {
	t.Helper()
	r := &redServers{servers: make([]*testredis.Server, n), key: redKey}
	for i := range n {
		r.servers[i] = testredis.Start(t, args...)
		r.direct = append(r.direct, r.servers[i].Client(t))
	}
	return r
}

// sessions makes one process's sessions, one for each client.
func sessions(t testing.TB, clients []*redis.Client, options ...rlock.SessionOption) (all []*rlock.Session) {
	t.Helper()
	for _, c := range clients {
		all = append(all, testlock.NewSession(t, c, options...))
	}
	return all
}

// client is a process of its own: new connections to all servers, and sessions on them.
func (r *redServers) client(t testing.TB, options ...rlock.SessionOption) []*rlock.Session {
	t.Helper()
	var clients []*redis.Client
	for _, s := range r.servers {
		clients = append(clients, s.Client(t))
	}
	return sessions(t, clients, options...)
}

// held counts the servers that have the lock taken.
func (r *redServers) held(t testing.TB) (n int) {
	t.Helper()
	for _, c := range r.direct {
		k, err := c.Exists(bg, r.key).Result()
		testlock.Must(t, err)
		n += int(k)
	}
	return n
}

// everywhere waits until one grant has the lock on all servers. A majority is enough to hold it, and on the others the release of
// an earlier grant may be under way.
func (r *redServers) everywhere(t testing.TB) {
	t.Helper()
	testlock.Eventually(t, "locked everywhere", func() bool { return r.unanimous(t) })
}

// unanimous: one grant has the lock on all servers.
func (r *redServers) unanimous(t testing.TB) bool {
	t.Helper()
	grants := map[string]bool{}
	for _, c := range r.direct {
		token, err := c.HGet(bg, r.key, "t").Result()
		if err == redis.Nil {
			return false
		}
		testlock.Must(t, err)
		grants[token] = true
	}
	return len(grants) == 1
}

// free waits until no server has the lock taken.
func (r *redServers) free(t testing.TB) {
	t.Helper()
	testlock.Eventually(t, "free everywhere", func() bool { return r.held(t) == 0 })
}

// settle waits until the lock is free everywhere, and no earlier request of m for it is under way: a round is over once a majority has answered.
func (r *redServers) settle(t testing.TB, m *rlock.Mutex) {
	t.Helper()
	hold := testlock.Take(t, m)
	r.everywhere(t)
	testlock.Unlock(t, hold)
	r.free(t)
}

// another names a lock that no request for an earlier one can reach. A round is over once a majority has answered, so some of
// its requests may be under way when the lock is free everywhere.
func (r *redServers) another(i int) (name string) {
	name = fmt.Sprint("x", i)
	r.key = "lockline:q:{" + name + "}"
	return name
}

// proxied puts a proxy before each server.
func (r *redServers) proxied(t testing.TB) (proxies []*faultproxy.Proxy, clients []*redis.Client) {
	t.Helper()
	for _, s := range r.servers {
		p := faultproxy.New(t, s.Addr)
		proxies, clients = append(proxies, p), append(clients, p.Client(t))
	}
	return proxies, clients
}

// warmed has learned the servers' clocks and scripts.
func warmed(t testing.TB, m *rlock.Mutex) *rlock.Mutex {
	t.Helper()
	for range 2 {
		testlock.Works(t, m)
	}
	return m
}

// scriptFile is the name of a script as it is sent.
func scriptFile(t testing.TB, file string) string { return redScript(t, file).Hash() }

// patient is the RedLock "x", to which a server does not count as slow only because this machine stands still for a moment.
func patient(t testing.TB, all []*rlock.Session) *rlock.Mutex {
	t.Helper()
	q, err := multilock.NewQuorum(all, multilock.WithServerTimeout(testlock.Patience/3))
	testlock.Must(t, err)
	return q.New("x")
}

func redScript(t testing.TB, file string) *redis.Script {
	t.Helper()
	body, err := os.ReadFile(file)
	testlock.Must(t, err)
	return redis.NewScript(string(body))
}

func TestAnUncontendedRedLockIsOneRequestAndOneReleaseForEachServer(t *testing.T) {
	r := startServers(t, 5)
	proxies, clients := r.proxied(t)
	m := warmed(t, patient(t, sessions(t, clients)))
	lock, release := scriptFile(t, "redlock_lock.lua"), scriptFile(t, "redlock_release.lua")
	attempt := func(owner string) int {
		_, serial, _ := strings.Cut(owner, ":")
		n, err := strconv.Atoi(serial)
		testlock.Must(t, err)
		return n
	}
	first := 0 // attempt that counts: requests of the warming may arrive at any time
	counts := func() (c struct{ all, locks, releases int }) {
		for _, p := range proxies {
			for _, q := range p.Requests() {
				script := q.Script()
				if script == "" || attempt(q.Args[5]) < first { // the first is a new connection's
					continue
				}
				switch script {
				case lock:
					c.locks++
				case release:
					c.releases++
				}
				c.all++
			}
		}
		return c
	}
	settled := func() bool { return counts().releases == 5 && r.held(t) == 0 }
	r.free(t)
	for range 20 {
		for _, p := range proxies {
			p.Reset()
		}
		ctx, hold := testlock.Lock(t, m, testlock.Bounded(t))
		r.everywhere(t)
		if first == 0 {
			fields := r.direct[0].HKeys(bg, redKey).Val()
			first = attempt(fields[slices.IndexFunc(fields, func(f string) bool { return strings.Contains(f, ":") })])
		}
		if c := counts(); c.all != 5 || c.locks != 5 {
			t.Fatalf("lock: %+v", c)
		}
		_ = ctx
		testlock.Unlock(t, hold)
		testlock.Eventually(t, "released everywhere", settled)
		if c := counts(); c.all != 10 {
			t.Fatalf("lock and unlock: %+v", c)
		}
	}
	// A re-entry and its end are one each. Each is waited for, because neither waits for more than a majority.
	ctx, hold := testlock.Lock(t, m, testlock.Bounded(t))
	reenter := func(n int) {
		t.Helper()
		changed := func() bool {
			n := strconv.Itoa(n)
			return !slices.ContainsFunc(r.direct, func(c *redis.Client) bool { return c.HGet(bg, redKey, "s").Val() != n })
		}
		_, nested := testlock.Lock(t, m, ctx)
		if nested.Token() != hold.Token() {
			t.Errorf("nested token %d, not %d", nested.Token(), hold.Token())
		}
		testlock.Eventually(t, "re-entered everywhere", changed)
		testlock.Unlock(t, nested)
		n++
		testlock.Eventually(t, "its end is known everywhere", changed)
	}
	reenter(1) // brings the script to all servers
	for _, p := range proxies {
		p.Reset()
	}
	reenter(3)
	if c := counts(); c.all != 10 {
		t.Errorf("re-entry: %+v", c)
	}
	testlock.Unlock(t, hold)
}

func TestTheTokenIsStoredByAMajorityAndGrows(t *testing.T) {
	r := startServers(t, 5)
	a := multilock.NewRedLock("x", r.client(t)...)
	b := multilock.NewRedLock("x", r.client(t)...)
	last := int64(0)
	for i := range 50 {
		m := a
		if i%3 == 0 {
			m = b
		}
		if i == 20 { // a server whose clock is an hour ahead has left its mark on a majority
			r.settle(t, m)
			for _, c := range r.direct[1:4] {
				testlock.Must(t, c.HSet(bg, redMemory, "t", time.Now().Add(time.Hour).UnixMicro(), "b", "somebody:1").Err())
			}
		}
		hold := testlock.Take(t, m)
		stored := 0
		for _, c := range r.direct {
			token, _ := c.HGet(bg, redMemory, "t").Int64()
			if token >= hold.Token() {
				stored++
			}
		}
		if hold.Token() <= last || stored < 3 {
			t.Fatalf("round %d: token %d after %d, stored by %d", i, hold.Token(), last, stored)
		}
		last = hold.Token()
		testlock.Unlock(t, hold)
	}
	if last < time.Now().Add(59*time.Minute).UnixMicro() {
		t.Errorf("the tokens fell back behind what was stored: %d", last)
	}
}

func TestWithoutAMajorityEverythingIsGivenBack(t *testing.T) {
	t.Parallel()
	r := startServers(t, 5)
	m := warmed(t, patient(t, r.client(t)))
	r.settle(t, m)
	// A foreign holder on three servers.
	for _, c := range r.direct[:3] {
		testlock.Must(t, c.HSet(bg, redKey, "other:1", 1, "t", "7", "s", 0, "d", "12@there other").Err())
		testlock.Must(t, c.PExpire(bg, redKey, time.Minute).Err())
	}
	_, _, err := m.TryLock(bg)
	var locked *rlock.LockedError
	if !errors.As(err, &locked) || locked.Holder != "other:1" || !strings.Contains(locked.About, "12@there") || locked.Remaining < 50*time.Second {
		t.Fatalf("TryLock: %v, %+v", err, locked)
	}
	testlock.Eventually(t, "given back", func() bool { return r.held(t) == 3 })
	if _, _, err := m.Lock(bg, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
		t.Fatalf("Lock: %v", err)
	}
	testlock.Eventually(t, "given back", func() bool { return r.held(t) == 3 })
	// On two servers it is in nobody's way.
	testlock.Must(t, r.direct[0].Del(bg, redKey).Err())
	_, hold := testlock.TryLock(t, m, bg)
	testlock.Unlock(t, hold)
	// No majority at all: not a lock error.
	for _, s := range r.servers[:3] {
		s.Kill()
	}
	if _, _, err := m.TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), "3 are needed") {
		t.Fatalf("TryLock of a minority: %v", err)
	}
	for i, c := range r.direct[3:] {
		testlock.Eventually(t, "given back", func() bool { return c.Exists(bg, redKey).Val() == int64([]int{0, 0}[i]) })
	}
}

func TestAWaiterIsWokenByMessagesAndAsksNothingMeanwhile(t *testing.T) {
	r := startServers(t, 5)
	proxies, clients := r.proxied(t)
	forEver := rlock.WithWatchdogTimeout(time.Hour) // the end of no lease wakes anybody
	hold := testlock.Take(t, multilock.NewRedLock("x", r.client(t, forEver)...))
	r.everywhere(t)
	m := multilock.NewRedLock("x", sessions(t, clients, forEver)...)
	got := testlock.Go(testlock.Bounded(t), m)
	channel := func(c *redis.Client) bool { return c.PubSubNumSub(bg, redKey).Val()[redKey] == 1 }
	testlock.Eventually(t, "subscribed everywhere", func() bool { return !slices.ContainsFunc(r.direct, func(c *redis.Client) bool { return !channel(c) }) })
	scripts := func() (n int) {
		for _, p := range proxies {
			n += p.Count("EVAL", "EVALSHA")
		}
		return n
	}
	before := scripts()
	for deadline := time.Now().Add(testlock.Patience); ; before = scripts() { // it asks once more when that is confirmed
		<-time.After(300 * time.Millisecond)
		if scripts() == before || time.Now().After(deadline) {
			break
		}
	}
	if before > 25 {
		t.Errorf("%d requests before the release", before)
	}
	testlock.Unlock(t, hold)
	h := testlock.Granted(t, got) // a message wakes it
	testlock.WantAfter(t, h, hold.Token())
	testlock.Unlock(t, h)
	r.free(t)
}

func TestAHoldOutlivesTheLossOfAMinorityAndNotOfAMajority(t *testing.T) {
	const lease = 1500 * time.Millisecond
	r := startServers(t, 5)
	m := multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(lease))...)
	ctx, hold := testlock.Lock(t, m, testlock.Bounded(t))
	r.everywhere(t)
	r.servers[0].Kill()
	r.servers[1].Freeze()
	t.Cleanup(r.servers[1].Thaw)
	start := time.Now()
	testlock.Eventually(t, "renewed", func() bool { return time.Since(start) > 2*lease })
	testlock.Must(t, hold.Err())
	r.servers[2].Kill()
	<-ctx.Done()
	testlock.WantError(t, "cause", context.Cause(ctx), rlock.ErrLost)
	// The two that are left still have it: nobody else could have had a majority yet.
	for _, c := range r.direct[3:] {
		if left := c.PTTL(bg, redKey).Val(); left <= 0 {
			t.Errorf("the context ended when the lock was over: %v", left)
		}
	}
	testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	for _, c := range r.direct[3:] {
		testlock.Eventually(t, "given back", func() bool { return c.Exists(bg, redKey).Val() == 0 })
	}
}

func TestAMajorityThatForgotEndsTheHoldAtTheNextRenewal(t *testing.T) {
	r := startServers(t, 5)
	m := multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(3*time.Second))...)
	ctx, hold := testlock.Lock(t, m, testlock.Bounded(t))
	r.everywhere(t)
	for _, s := range r.servers[:2] {
		s.Restart(t)
	}
	r.everywhere(t)
	testlock.Must(t, hold.Err())
	testlock.Eventually(t, "three forget it at one time", func() bool {
		for _, c := range r.direct[:3] {
			testlock.Must(t, c.FlushAll(bg).Err())
		}
		return ctx.Err() != nil
	})
	<-ctx.Done()
	if !errors.Is(hold.Err(), rlock.ErrLost) {
		t.Errorf("%v", hold.Err())
	}
	_ = hold.Unlock(bg)
	again := testlock.Take(t, m)
	testlock.WantAfter(t, again, hold.Token())
	testlock.Unlock(t, again)
}

func TestOperatorsSeeAndFreeARedLock(t *testing.T) {
	t.Parallel()
	r := startServers(t, 5)
	m, ops := patient(t, r.client(t, rlock.WithLabel("billing"))), patient(t, r.client(t))
	ctx, hold := testlock.Lock(t, m, testlock.Bounded(t))
	r.everywhere(t)
	r.servers[4].Kill()
	st := testlock.Inspect(t, ops)
	if !st.Held || st.Token != hold.Token() || st.Label != "billing" || st.Count != 1 || st.PID != os.Getpid() || st.Remaining <= 0 {
		t.Errorf("%+v", st)
	}
	if freed, err := ops.ForceUnlockToken(bg, st.Token-1); freed || err != nil {
		t.Errorf("ForceUnlockToken of another holder: %v, %v", freed, err)
	}
	if st, err := ops.Inspect(bg); err != nil || !st.Held || st.Token != hold.Token() {
		t.Errorf("forced from another holder: %+v, %v", st, err)
	}
	if freed, err := ops.ForceUnlockToken(bg, st.Token); !freed || err != nil {
		t.Errorf("ForceUnlockToken: %v, %v", freed, err)
	}
	for i, c := range r.direct[:4] {
		if n, err := c.Exists(bg, redKey).Result(); err != nil || n != 0 {
			t.Errorf("server %d: %d, %v", i, n, err)
		}
	}
	if freed, err := ops.ForceUnlock(bg); freed || err != nil {
		t.Errorf("ForceUnlock of a free lock: %v, %v", freed, err)
	}
	_ = hold.Extend(bg, time.Minute) // it learns of it
	testlock.Receive(t, "the context ends", ctx.Done())
	if st = testlock.Inspect(t, ops); st.Held || st.Token < hold.Token() {
		t.Errorf("%+v", st)
	}
	r.servers[3].Kill()
	r.servers[2].Kill()
	if _, err := ops.Inspect(bg); err == nil {
		t.Error("Inspect of a minority")
	}
	if _, err := ops.ForceUnlock(bg); err == nil {
		t.Error("ForceUnlock of a minority")
	}
}

func TestClosingASessionEndsTheRedLocksOnIt(t *testing.T) {
	r := startServers(t, 5)
	all := r.client(t)
	m, other := multilock.NewRedLock("x", all...), multilock.NewRedLock("y", all...)
	ctx, hold := testlock.Lock(t, m, testlock.Bounded(t))
	r.everywhere(t)
	theirs := multilock.NewRedLock("y", r.client(t)...)
	held := testlock.Take(t, theirs)
	waits := make(chan error)
	go func() {
		_, _, err := other.Lock(bg)
		waits <- err
	}()
	testlock.Eventually(t, "waits", func() bool { return r.direct[0].PubSubNumSub(bg, "lockline:q:{y}").Val()["lockline:q:{y}"] == 1 })
	testlock.Must(t, all[3].Close())
	if r.held(t) != 0 || !errors.Is(context.Cause(ctx), rlock.ErrClosed) || !errors.Is(hold.Err(), rlock.ErrClosed) {
		t.Errorf("after Close: held by %d, %v", r.held(t), context.Cause(ctx))
	}
	testlock.WantError(t, "the waiter", <-waits, rlock.ErrClosed)
	if _, _, err := m.Lock(bg); !errors.Is(err, rlock.ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	if _, _, err := multilock.NewRedLock("z", all...).Lock(bg); !errors.Is(err, rlock.ErrClosed) {
		t.Errorf("Lock of a new one: %v", err)
	}
	testlock.Unlock(t, held)
}

func TestSessionsThatMakeNoQuorumAreRefused(t *testing.T) {
	t.Parallel()
	r := startServers(t, 2)
	a := r.client(t)
	again := r.client(t)
	prefix := sessions(t, r.direct[1:], rlock.WithPrefix("other"))
	lease := sessions(t, r.direct[1:], rlock.WithWatchdogTimeout(time.Second))
	redisson := sessions(t, r.direct[1:], rlock.RedissonKeys())
	for want, ss := range map[string][]*rlock.Session{
		"no sessions":              {},
		"session 2 of 2 is nil":    {a[0], nil},
		"sessions 1 and 2 are of":  {a[0], a[0]},
		"its vote would count":     {a[0], again[0]},
		"differ in their prefixes": {a[0], prefix[0]},
		"watchdog timeouts":        {a[0], lease[0]},
		"RedissonKeys":             {a[0], redisson[0]},
	} {
		if _, err := multilock.NewQuorum(ss); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
		if _, _, err := multilock.NewRedLock("x", ss...).Lock(bg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: Lock: %v", want, err)
		}
	}
	for _, d := range []time.Duration{-1, time.Hour} {
		if _, err := multilock.NewQuorum(a, multilock.WithServerTimeout(d)); err == nil {
			t.Errorf("a timeout of %v", d)
		}
	}
	if _, _, err := new(multilock.Quorum).New("x").Lock(bg); err == nil {
		t.Error("a zero Quorum")
	}
	if _, _, err := multilock.NewRedLock("", a...).Lock(bg); err == nil {
		t.Error("an empty name")
	}
	// One server, or two: both must grant.
	for n := 1; n <= 2; n++ {
		testlock.Works(t, multilock.NewRedLock("x", a[:n]...))
	}
	r.servers[1].Kill()
	if _, _, err := multilock.NewRedLock("x", a...).TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
		t.Errorf("one of two: %v", err)
	}
}

func TestARedLockAndALockOfOneNameAreTwoLocks(t *testing.T) {
	r := startServers(t, 3)
	all := r.client(t)
	hold := testlock.Take(t, multilock.NewRedLock("x", all...))
	_, plain := testlock.TryLock(t, rlock.New(all[0], "x"), bg)
	testlock.Unlock(t, plain)
	testlock.Unlock(t, hold)
}

// Two Mutexes of one name over the same sessions, in whatever order, are one lock.
func TestTheOrderOfSessionsMakesNoDifference(t *testing.T) {
	r := startServers(t, 3)
	all := r.client(t)
	ctx, hold := testlock.Lock(t, multilock.NewRedLock("x", all...), testlock.Bounded(t))
	_, nested := testlock.TryLock(t, multilock.NewRedLock("x", all[2], all[0], all[1]), ctx)
	testlock.Unlock(t, nested)
	testlock.Unlock(t, hold)
}

// Five clients that all ask at once split the votes, again and again, until one of them has a majority.
func TestSplitVotesResolve(t *testing.T) {
	const clients, rounds = 5, 1000
	r := startServers(t, 5)
	lock := scriptFile(t, "redlock_lock.lua")
	var mu sync.Mutex         // guards votes
	votes := map[string]int{} // by session, in this round
	var mutexes []*rlock.Mutex
	for range clients {
		var cs []*redis.Client
		for i, s := range r.servers {
			c := s.Client(t)
			if i == 0 {
				c.AddHook(testlock.Hook{Command: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if args := cmd.Args(); len(args) > 5 && args[1] == lock {
						session, _, _ := strings.Cut(fmt.Sprint(args[5]), ":")
						mu.Lock()
						votes[session]++
						mu.Unlock()
					}
					return next(ctx, cmd)
				}})
			}
			cs = append(cs, c)
		}
		mutexes = append(mutexes, warmed(t, multilock.NewRedLock("x", sessions(t, cs)...)))
	}
	var won, all, most int
	last := int64(0)
	for round := range rounds {
		r.free(t)
		mu.Lock()
		clear(votes)
		mu.Unlock()
		ctx, cancel := context.WithTimeout(bg, testlock.Patience)
		start := make(chan struct{})
		winners := make(chan *rlock.Hold, clients)
		var wg sync.WaitGroup
		for _, m := range mutexes {
			wg.Go(func() {
				<-start
				if _, h, err := m.Lock(ctx); err == nil {
					winners <- h
				} else if ctx.Err() == nil {
					t.Error(err)
					winners <- nil
				}
			})
		}
		close(start)
		first := <-winners
		if first == nil {
			cancel()
			wg.Wait()
			return
		}
		mu.Lock()
		n := 0
		for _, v := range votes {
			n = max(n, v)
			all += v
		}
		mu.Unlock()
		won += n
		most = max(most, n)
		if first.Token() <= last {
			t.Fatalf("round %d: token %d after %d", round, first.Token(), last)
		}
		last = first.Token()
		cancel()
		wg.Wait()
		select {
		case <-winners:
			t.Fatalf("round %d: two holders", round)
		default:
		}
		testlock.Unlock(t, first)
	}
	t.Logf("until one of %d had a majority, it took %.2f votes of the one that voted most often, at most %d, and %.2f of all together, in the mean of %d rounds",
		clients, float64(won)/rounds, most, float64(all)/rounds, rounds)
	if won > 10*rounds {
		t.Errorf("%d votes in %d rounds", won, rounds)
	}
}

// What a second round reserves is given back like any other block, or the next round would find it in its way, and so on.
func TestASecondRoundIsFollowedByNoOther(t *testing.T) {
	r := startServers(t, 3)
	proxies, clients := r.proxied(t)
	a, b := warmed(t, multilock.NewRedLock("x", sessions(t, clients)...)), multilock.NewRedLock("x", sessions(t, clients)...)
	accept := scriptFile(t, "redlock_accept.lua")
	r.settle(t, a)
	for _, c := range r.direct { // a client whose servers' clocks are ahead was there
		testlock.Must(t, c.HSet(bg, redMemory, "t", time.Now().Add(time.Hour).UnixMicro(), "b", "somebody:1").Err())
	}
	for i := range 20 {
		m := a
		if i >= 10 {
			m = b
		}
		testlock.Unlock(t, testlock.Take(t, m))
		r.free(t)
	}
	for i, p := range proxies {
		second := 0
		for _, q := range p.Requests() {
			if q.Script() == accept {
				second++
			}
		}
		if second > 5 { // one for each of the two, and one where a server got a release late; else each of the cycles has one
			t.Errorf("server %d was asked to accept another token %d times", i, second)
		}
	}
}

// Close gives back the rest of a hold's block, and not what was used of it.
func TestCloseKeepsTheTokensThatWereUsed(t *testing.T) {
	r := startServers(t, 3)
	waits := make(testlock.Waits, 10)
	all := r.client(t, longStreak, rlock.WithObserver(waits))
	m := patient(t, all)
	first := testlock.Take(t, m)
	second := testlock.Go(bg, m)
	<-waits
	testlock.Unlock(t, first) // handed on in memory
	token := testlock.Granted(t, second).Token()
	if token != first.Token()+1 {
		t.Errorf("token %d after %d: not handed on", token, first.Token())
	}
	for _, s := range all {
		testlock.Must(t, s.Close())
	}
	for i, c := range r.direct {
		if stored := c.HGet(bg, redMemory, "t").Val(); stored != strconv.FormatInt(token, 10) {
			t.Errorf("server %d remembers %s, not %d", i, stored, token)
		}
	}
}
