package fairlock_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/simnet"
	"github.com/lockline/lockline/rlock"
)

var (
	simSeeds = flag.Int("seeds", 0, "how many seeds the simulation runs; 0: up to 300, as many as begin within simPatience")
	simSeed  = flag.Int64("seed", -1, "the one seed that the simulation runs")
	simFrom  = flag.Int64("from", 1, "the first of the seeds that the simulation runs")
)

const (
	simPatience = 12 * time.Second // of whoever waits for the test, in real time

	simLease    = 3 * time.Second
	simLiveness = 2 * time.Second
	simActors   = 3 // of each of the three sessions
	simCrowd    = 6 // of each in the seeds where they ask together
	simTogether = 250 * time.Millisecond

	// simGrace is what it takes at most until the last of the faults is over: the
	// leases of the dead, late messages, and the noticing of a deaf subscription.
	simGrace = 8 * time.Second
	// simGap bounds, when all is well, for how long nobody has the lock while somebody
	// waits, counted from each grant: a heartbeat, if the message was lost, and a few round
	// trips, if its waiter is gone.
	simGap = time.Second
	// simFreeGap is the same for the reentrant lock, where who missed the message looks when the
	// lease would have been over.
	simFreeGap = simLease + time.Second
	// simLate is when a message that was delayed arrives at last.
	simLate = 3 * time.Second
)

// Sessions on a network that loses, delays and cuts, and that crash, keep all
// that the lock promises; and when the network is well again, so is the lock.
func TestWhateverTheNetworkDoesTheFairLockKeepsItsPromises(t *testing.T) {
	simulateSeeds(t, true, "handed", "dropped")
}

// The reentrant lock promises no order, and neighbors hand it over in memory.
func TestWhateverTheNetworkDoesTheReentrantLockKeepsItsPromises(t *testing.T) {
	simulateSeeds(t, false)
}

// simulateSeeds runs the simulation. meets: what must happen beside the usual.
func simulateSeeds(t *testing.T, fair bool, meets ...string) {
	redis.SetLogger(silence{}) // go-redis logs each dial that fails
	scripts := loadScripts(t, fair)
	var total simStats
	run := func(t *testing.T, seed int64) {
		total.seeds.Add(1)
		failure := simulate(t, seed, fair, scripts, &total)
		if failure == "" {
			return
		}
		// The order of goroutines that wake at one instant is not the seed's.
		again := 0
		for range 5 {
			if simulate(t, seed, fair, scripts, &total) != "" {
				again++
			}
		}
		t.Errorf("seed %d (it failed again in %d of 5 runs): %s", seed, again, failure)
	}
	t.Run("seeds", func(t *testing.T) {
		if *simSeed >= 0 {
			run(t, *simSeed)
			return
		}
		n, start := *simSeeds, time.Now()
		if n == 0 {
			n = 300
		}
		for i := range int64(n) {
			t.Run(fmt.Sprint(*simFrom+i), func(t *testing.T) {
				t.Parallel()
				if *simSeeds != 0 || time.Since(start) < simPatience {
					run(t, *simFrom+i)
				}
			})
		}
	})
	t.Log(&total)
	if total.entered.Load() > 10_000 { // or a quiet world proves nothing
		for what, n := range map[string]*atomic.Int64{"handed": &total.handed, "in memory": &total.inMemory, "lost": &total.lost, "canceled": &total.canceled,
			"crashed": &total.crashed, "dropped": &total.dropped, "nested": &total.nested, "late": &total.late, "unanswered": &total.failed} {
			if only := what == "handed" || what == "dropped"; n.Load() == 0 && (!only || slices.Contains(meets, what)) {
				t.Errorf("there is no %s in all seeds", what)
			}
		}
	}
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// simStats tell whether the simulation meets what it is about.
type simStats struct {
	seeds, requests, entered, handed, inMemory, nested, lost, canceled, failed, crashed, closed, dropped, late atomic.Int64
}

func (s *simStats) String() string {
	return fmt.Sprintf("%d seeds, %d requests, %d entries (%d handed over, %d in memory), %d nested, %d lost, %d canceled, %d failed, %d crashes, %d closed, %d dropped, %d too late",
		s.seeds.Load(), s.requests.Load(), s.entered.Load(), s.handed.Load(), s.inMemory.Load(), s.nested.Load(), s.lost.Load(), s.canceled.Load(), s.failed.Load(),
		s.crashed.Load(), s.closed.Load(), s.dropped.Load(), s.late.Load())
}

// simScripts names scripts by their SHA.
type simScripts map[string]string

func loadScripts(t *testing.T, fair bool) simScripts {
	s := simScripts{}
	of := map[string][]string{"lock": {"../rlock/lock.lua"}, "release": {"../rlock/release.lua"}}
	if fair {
		of = map[string][]string{
			"lock": {"prelude.lua", "lock.lua"}, "release": {"prelude.lua", "release.lua"}, "heartbeat": {"prelude.lua", "heartbeat.lua"},
		}
	}
	of["keep"] = []string{"../internal/engine/keep.lua"}
	for name, files := range of {
		s[script(t, files...).Hash()] = name
	}
	return s
}

// simWorld is one seed's run.
type simWorld struct {
	*simStats
	seed    int64
	fair    bool          // or reentrant
	lock    string        // its key
	crowd   time.Duration // goroutines of a session ask together, this often; 0: each when it likes
	streak  time.Duration
	scripts simScripts
	server  *miniredis.Miniredis
	net     *simnet.Net
	start   time.Time

	mu      sync.Mutex // guards all below; held for moments
	events  []string   // the last ones
	failure string     // the first one, with the events that led to it
	ending  bool       // actors stop

	// What the server did, told from the requests as it got them.
	known   map[string]bool // scripts
	waiting map[string]*simEntry
	arrived int
	token   int64 // of the present grant; 0: free
	highest int64
	tokens  []int64   // first of each grant's block, ascending
	moved   time.Time // when it was last granted
	grants  map[int64]string
	over    map[string]string // attempts that have left, or whose grant was noticed: nothing changes for them again

	// What the clients believe.
	believed map[*simHold]struct{}
	last     int64         // the highest token that anybody entered with
	kept     []*rlock.Hold // all there were, or a crash would look like a Hold that was forgotten
	asking   map[*simAsk]struct{}
	quiet    time.Time // from when on nothing may be late; zero before
	free     time.Time // when the last hold ended
}

// simEntry is an attempt in the queue.
type simEntry struct {
	number int   // in the order of arrival
	alive  int64 // until then it is known to live, in microseconds
	ticket float64
}

// simHold is a hold that its holder believes in until it gives it up or is told.
type simHold struct {
	who    string
	ctx    context.Context
	cancel context.CancelFunc
	hold   *rlock.Hold
	token  int64
}

func (h *simHold) valid() bool { return h.hold.Err() == nil || h.ctx.Err() == nil }

// simAsk is a call of Lock under way.
type simAsk struct {
	host  *simHost
	since time.Time
	ahead map[string]int // who entered meanwhile, how often
}

// simHost is a process: a session, while it lives.
type simHost struct {
	*simnet.Host
	rdb     *redis.Client
	s       *rlock.Session
	crashed atomic.Bool
	closing atomic.Bool
}

func simulate(t *testing.T, seed int64, fair bool, scripts simScripts, stats *simStats) (failure string) {
	defer func() { // what is left in a bubble panics
		if p := recover(); p != nil {
			failure += fmt.Sprintf("\npanic: %v", p)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := &simWorld{simStats: stats, seed: seed, fair: fair, lock: strings.Replace(lockKey, ":f:", ":r:", 1), scripts: scripts, start: time.Now(), server: miniredis.NewMiniRedis(),
			known: map[string]bool{}, waiting: map[string]*simEntry{}, over: map[string]string{}, grants: map[int64]string{}, believed: map[*simHold]struct{}{}, asking: map[*simAsk]struct{}{}}
		if fair {
			w.lock = lockKey
		}
		w.server.ClockTTL(true)
		w.run()
		failure = w.failure
	})
	return failure
}

func (w *simWorld) rand(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(w.seed), stream))
}

func (w *simWorld) sleep(d time.Duration) { time.Sleep(w.net.Until(d)) }

// log notes an event. mu held.
func (w *simWorld) log(format string, args ...any) {
	const most = 400
	if len(w.events) >= 2*most {
		w.events = slices.Delete(w.events, 0, most)
	}
	w.events = append(w.events, fmt.Sprintf("%12.6f ", float64(time.Since(w.start).Nanoseconds())/1e6)+fmt.Sprintf(format, args...))
}

// fail notes the first violation. mu held.
func (w *simWorld) fail(format string, args ...any) {
	w.log("VIOLATION: "+format, args...)
	if w.failure == "" {
		tail := w.events[max(0, len(w.events)-120):]
		w.failure = fmt.Sprintf(format, args...) + "\n(milliseconds since the start)\n" + strings.Join(tail, "\n")
	}
}

func (w *simWorld) run() {
	rnd := w.rand(0)
	faults := simnet.Faults{Latency: 20 * time.Millisecond, Late: 0.5, LateBy: simLate}
	w.net = simnet.New(uint64(w.seed), faults, w.server.Dial)
	w.net.After = w.served
	// Some seeds have few faults, so that one is seen alone.
	harsh := rnd.Float64() * rnd.Float64()
	actorsOfEach := simActors
	if rnd.IntN(2) == 0 {
		w.crowd, actorsOfEach = simTogether, simCrowd
	}
	w.streak = time.Duration(rnd.Int64N(int64(2 * time.Second)))
	faults.Spike, faults.SpikeTo = 0.1*harsh, time.Second
	faults.CutRequest, faults.CutReply, faults.Deafen, faults.LosePush = 0.05*harsh, 0.1*harsh, 0.03*harsh, 0.5*harsh
	w.net.SetFaults(faults)

	var hosts, actors sync.WaitGroup
	stop := make(chan struct{}) // no more faults
	var mu sync.Mutex           // guards living
	living := map[int]*simHost{}
	for i := range 3 {
		hosts.Go(func() {
			rnd := w.rand(uint64(1 + i))
			for life := 0; ; life++ {
				h := w.boot(fmt.Sprintf("%c%d", 'A'+i, life))
				for a := range actorsOfEach {
					actors.Go(func() { w.act(h, fmt.Sprintf("%s.%d", h.Name, a), w.rand(uint64(100+i*1000+life*10+a))) })
				}
				mu.Lock()
				living[i] = h
				mu.Unlock()
				var ends bool
				for over := false; !over; {
					over, ends = w.afflict(h, rnd, harsh, stop)
				}
				if !ends {
					return
				}
				w.sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
			}
		})
	}
	w.sleep(8*time.Second + time.Duration(rnd.Int64N(int64(16*time.Second))))

	// From here on all is well...
	close(stop)
	hosts.Wait()
	// ...but for messages: they may get lost always, and it may only cost a heartbeat.
	w.net.SetFaults(simnet.Faults{Latency: 10 * time.Millisecond, LosePush: 0.2})
	for _, h := range living {
		h.Heal()
	}
	w.mu.Lock()
	w.log("all is well from here on")
	w.quiet = time.Now().Add(simGrace)
	w.mu.Unlock()
	for end := time.Now().Add(simGrace + 5*time.Second); time.Now().Before(end); {
		w.sleep(250 * time.Millisecond)
		w.mu.Lock()
		w.progress()
		w.mu.Unlock()
	}
	// Some wait and some hold as their sessions close.
	for _, h := range living {
		w.close(h)
	}
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	w.sleep(100 * time.Millisecond) // what was on its way
	w.leftBehind(w.lock + ":t")
	if c := w.server.PubSubChannels("*"); len(c) > 0 {
		w.mu.Lock()
		w.fail("subscriptions are left: %q", c)
		w.mu.Unlock()
	}
	actors.Wait()
	w.sleep(3 * time.Minute)
	w.leftBehind()
	w.server.Close()
	runtime.KeepAlive(w.kept)
}

func (w *simWorld) leftBehind(except ...string) {
	for _, key := range w.server.Keys() {
		if !slices.Contains(except, key) {
			w.mu.Lock()
			w.fail("%q is left behind: %s", key, w.server.Dump())
			w.mu.Unlock()
		}
	}
}

func (w *simWorld) boot(name string) *simHost {
	h := &simHost{Host: w.net.Host(name)}
	h.rdb = redis.NewClient(&redis.Options{
		Addr:            "127.0.0.1:1", // never dialed, but looked up
		Dialer:          h.Dial,
		DialTimeout:     300 * time.Millisecond,
		ReadTimeout:     300 * time.Millisecond,
		DialerRetries:   1,
		DisableIdentity: true,
		Protocol:        2, // nothing to say at the start of a connection
		// The handshake about maintenance holds a mutex while it waits for the server: a bubble would hang.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		ReadBufferSize:           4096, WriteBufferSize: 16 << 10,
		PipelineReadBufferSize: 4096, PipelineWriteBufferSize: 16 << 10,
	})
	s, err := rlock.NewSession(h.rdb, rlock.WithLogger(quiet), rlock.WithWatchdogTimeout(simLease), rlock.WithLiveness(simLiveness), rlock.WithStreak(w.streak))
	if err != nil {
		panic(err)
	}
	h.s = s
	w.mu.Lock()
	w.log("%s is %s", name, s.ID()[:4])
	w.mu.Unlock()
	return h
}

// afflict waits a while and does something to a host. ends: another one takes its place.
func (w *simWorld) afflict(h *simHost, rnd *rand.Rand, harsh float64, stop <-chan struct{}) (over, ends bool) {
	select {
	case <-stop:
		return true, false
	case <-time.After(w.net.Until(time.Second + time.Duration(rnd.Int64N(int64(9*time.Second))))):
	}
	say := func(format string, args ...any) {
		w.mu.Lock()
		w.log(h.Name+": "+format, args...)
		w.mu.Unlock()
	}
	switch p := rnd.Float64(); {
	case p < 0.15:
		say("crashes")
		w.crashed.Add(1)
		h.crashed.Store(true)
		h.Kill()
		go func() { // it knows nothing of that; but in the end nothing may run any more
			w.sleep(10 * time.Second)
			_ = h.s.Close()
			_ = h.rdb.Close()
		}()
		return true, true
	case p < 0.25:
		say("closes")
		w.close(h)
		return true, true
	case p < 0.45:
		say("all its connections are cut")
		h.Cut()
	case p < 0.45+harsh:
		d := time.Duration(rnd.Int64N(int64([]time.Duration{time.Second, 2 * time.Second, 6 * time.Second}[rnd.IntN(3)])))
		say("is in a black hole for %v", d)
		h.BlackHole(d)
	}
	return false, false
}

// close shuts a session down. It must not take long, whatever the network does.
func (w *simWorld) close(h *simHost) {
	h.closing.Store(true)
	start := time.Now()
	err := h.s.Close()
	took := time.Since(start)
	_ = h.rdb.Close()
	w.closed.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("%s: closed in %v: %v", h.Name, took, err)
	if took > 7*time.Second {
		w.fail("%s: Close took %v", h.Name, took)
	}
	if err != nil && w.well() {
		w.fail("%s: Close: %v", h.Name, err)
	}
}

// well: there were no faults for long. mu held.
func (w *simWorld) well() bool { return !w.quiet.IsZero() && !time.Now().Before(w.quiet) }

// act is one goroutine of a process that locks and unlocks.
func (w *simWorld) act(h *simHost, who string, rnd *rand.Rand) {
	m := rlock.New(h.s, "x")
	if w.fair {
		m = fairlock.New(h.s, "x")
	}
	for n := 0; ; n++ {
		d := time.Duration(rnd.Int64N(int64([]time.Duration{50 * time.Millisecond, time.Second, 4 * time.Second}[rnd.IntN(3)])))
		if w.crowd != 0 && rnd.IntN(8) != 0 {
			d = w.crowd - time.Since(w.start)%w.crowd
		}
		w.sleep(d)
		w.mu.Lock()
		over := w.ending
		w.mu.Unlock()
		if over || h.crashed.Load() || h.closing.Load() {
			return
		}
		e, err := w.enter(h, who, m, bg, rnd, nil)
		if err != nil {
			continue
		}
		w.stay(e, rnd)
		var inner *simHold
		if rnd.IntN(6) == 0 && !h.crashed.Load() {
			if inner, err = w.enter(h, who, m, e.ctx, rnd, e); err == nil {
				w.stay(inner, rnd)
			}
		}
		if inner != nil && rnd.IntN(2) == 0 {
			e, inner = inner, e
		}
		w.leave(h, e, inner == nil, rnd)
		if inner != nil {
			if rnd.IntN(2) == 0 {
				w.stay(inner, rnd)
			}
			w.leave(h, inner, true, rnd)
		}
	}
}

// stay is work under the lock.
func (w *simWorld) stay(e *simHold, rnd *rand.Rand) {
	d := time.Duration(rnd.Int64N(int64([]time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}[rnd.IntN(3)])))
	if w.crowd != 0 {
		d /= 5
	}
	if rnd.IntN(25) == 0 {
		d *= 10 // is renewed
	}
	t := time.NewTimer(w.net.Until(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.ctx.Done():
	}
}

// enter locks, in one of the ways there are, and checks what came of it.
func (w *simWorld) enter(h *simHost, who string, m *rlock.Mutex, ctx context.Context, rnd *rand.Rand, outer *simHold) (*simHold, error) {
	var options []rlock.Option
	call, how := m.Lock, "Lock"
	wait := time.Duration(rnd.Int64N(int64(3 * time.Second)))
	ctx, cancel := context.WithCancel(ctx)
	switch rnd.IntN(8) {
	case 0:
		call, how = m.TryLock, "TryLock"
	case 1, 2:
		options, how = append(options, rlock.WaitAtMost(wait)), fmt.Sprintf("Lock, for at most %v", wait)
	case 3, 4:
		// The context is the hold's parent, too, so it is canceled only during the wait.
		t := time.AfterFunc(w.net.Until(wait), cancel)
		defer t.Stop()
		how = fmt.Sprintf("Lock, canceled after %v", wait)
	}
	if rnd.IntN(5) == 0 {
		lease := 200*time.Millisecond + time.Duration(rnd.Int64N(int64(3*time.Second)))
		options, how = append(options, rlock.WithLease(lease)), how+fmt.Sprintf(", lease %v", lease)
	}
	ask := &simAsk{h, time.Now(), map[string]int{}}
	w.mu.Lock()
	w.log("%s: %s, nested: %v", who, how, outer != nil)
	if outer == nil && !strings.HasPrefix(how, "Try") {
		w.asking[ask] = struct{}{}
	}
	w.mu.Unlock()

	ctx, hold, err := call(ctx, options...)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress()
	delete(w.asking, ask)
	if err != nil {
		w.log("%s: %v", who, err)
		w.refused(h, who, how, outer, err)
		cancel()
		return nil, err
	}
	e := &simHold{who, ctx, cancel, hold, hold.Token()}
	w.log("%s: entered, %d", who, e.token)
	w.entry(e, outer, ask)
	return e, nil
}

// refused checks why somebody did not get in. mu held.
func (w *simWorld) refused(h *simHost, who, how string, outer *simHold, err error) {
	ended := outer != nil && outer.ctx.Err() != nil
	switch {
	case h.crashed.Load() || h.closing.Load():
	case errors.Is(err, rlock.ErrClosed):
		w.fail("%s: %v, and it is not", who, err)
	case ended:
	case errors.Is(err, rlock.ErrLost):
		w.fail("%s: %v, and it was not", who, err)
	case errors.Is(err, context.Canceled):
		w.canceled.Add(1)
		if !strings.Contains(how, "canceled") {
			w.fail("%s: %s: %v", who, how, err)
		}
	case errors.Is(err, rlock.ErrLocked):
		w.canceled.Add(1)
		if !strings.Contains(how, "Try") && !strings.Contains(how, "at most") {
			w.fail("%s: %s: %v", who, how, err)
		}
	default:
		w.failed.Add(1)
		// A wait that is shorter than a round trip ends without an answer.
		if w.well() && !strings.Contains(how, "at most") {
			w.fail("%s: %s: %v", who, how, err)
		}
	}
}

// entry checks that whoever got in may be in. mu held.
func (w *simWorld) entry(e, outer *simHold, ask *simAsk) {
	w.entered.Add(1)
	if outer != nil {
		w.nested.Add(1)
		if e.token != outer.token {
			w.fail("%s: nested in %d it got %d", e.who, outer.token, e.token)
		}
	} else {
		if e.token <= w.last {
			w.fail("%s: entered with %d after %d", e.who, e.token, w.last)
		}
		w.last = e.token
		grant := w.grantOf(e.token)
		attempt := w.grants[grant]
		if attempt == "" {
			w.fail("%s: %d was never granted", e.who, e.token)
		}
		if e.token > grant {
			w.inMemory.Add(1)
		}
		if w.over[attempt] == "" { // else a lease that it had unknown to its client ran out
			w.over[attempt] = fmt.Sprintf("it was entered with %d", e.token)
		}
		for a := range w.asking {
			if a.ahead[e.who]++; w.fair && w.well() && a.since.After(w.quiet) && !a.host.closing.Load() && a.ahead[e.who] > 4 {
				w.fail("%s overtook a waiter %d times", e.who, a.ahead[e.who])
			}
		}
	}
	for other := range w.believed {
		if other.token != e.token && other.valid() {
			w.fail("%s entered with %d, and %s is inside with %d", e.who, e.token, other.who, other.token)
		}
	}
	w.kept = append(w.kept, e.hold)
	w.believed[e] = struct{}{}
	w.beliefs()
}

// beliefs checks that Redis holds the lock for whoever believes so: the stronger
// half of mutual exclusion, for it needs nobody else who got in. mu held.
func (w *simWorld) beliefs() {
	present := w.present()
	for e := range w.believed {
		switch {
		case !e.valid():
			w.lost.Add(1)
			w.log("%s: %d is lost", e.who, e.token)
			delete(w.believed, e)
			w.free = time.Now()
		case w.grantOf(e.token) != present:
			w.fail("%s believes to hold %d until %v; in Redis it is %d", e.who, e.token, e.hold.Deadline().Sub(w.start), present)
		}
	}
}

// grantOf is the first token of the block that a token is of. mu held.
func (w *simWorld) grantOf(token int64) int64 {
	i, found := slices.BinarySearch(w.tokens, token)
	switch {
	case found:
		return token
	case i > 0 && token < w.tokens[i-1]+1000:
		return w.tokens[i-1]
	}
	return 0
}

// present is the first token of the grant in Redis, 0 if the lock is free.
func (w *simWorld) present() int64 {
	token, _ := strconv.ParseInt(w.server.HGet(w.lock, "t"), 10, 64)
	return token
}

// progress checks that nobody waits for a lock that nobody has. mu held.
func (w *simWorld) progress() {
	w.beliefs()
	if !w.well() || len(w.believed) > 0 {
		return
	}
	gap := simGap
	if !w.fair {
		gap = simFreeGap
	}
	for a := range w.asking {
		since := slices.MaxFunc([]time.Time{a.since, w.free, w.quiet}, time.Time.Compare)
		idle := min(time.Since(since), time.Since(w.moved))
		if !a.host.crashed.Load() && !a.host.closing.Load() && (idle > gap || time.Since(since) > 6*gap) {
			w.fail("for %v nobody has had the lock, and %s waits", time.Since(since), a.host.Name)
		}
	}
}

// leave unlocks. last: no hold of its own is left.
func (w *simWorld) leave(h *simHost, e *simHold, last bool, rnd *rand.Rand) {
	if h.crashed.Load() {
		return
	}
	ctx := bg
	if rnd.IntN(3) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(bg, w.net.Until(time.Duration(rnd.Int64N(int64(500*time.Millisecond)))))
		defer cancel()
	}
	w.mu.Lock()
	w.beliefs()
	w.log("%s: unlocks %d, the last: %v", e.who, e.token, last)
	_, valid := w.believed[e]
	delete(w.believed, e)
	if last && valid {
		w.free = time.Now()
	}
	next := false // the lock may be handed over in memory
	for a := range w.asking {
		next = next || a.host == h
	}
	w.mu.Unlock()

	err := e.hold.Unlock(ctx)
	e.cancel()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("%s: unlocked: %v", e.who, err)
	switch {
	case h.crashed.Load() || h.closing.Load():
	case err == nil && !valid:
		w.fail("%s: Unlock of a lost hold: nil", e.who)
	case err == nil && last && !next && w.present() == w.grantOf(e.token):
		w.fail("%s: unlocked %d, and Redis still has it", e.who, e.token)
	case err != nil && valid && w.well() && ctx.Err() == nil:
		w.fail("%s: Unlock: %v", e.who, err)
	case errors.Is(err, rlock.ErrNotHeld) || errors.Is(err, rlock.ErrClosed):
		w.fail("%s: Unlock: %v", e.who, err)
	}
}

// served compares what the server made of a request with what it should have.
func (w *simWorld) served(from *simnet.Host, message []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range commands(message) {
		if kind, argv := w.scripts.call(c); kind != "" {
			w.requests.Add(1)
			if c[0] == "evalsha" && !w.known[kind] {
				continue // NOSCRIPT
			}
			w.known[kind] = true
			w.executed(from, kind, argv)
		}
	}
	w.beliefs()
}

func short(attempt string) string {
	return attempt[:4] + attempt[max(4, strings.IndexByte(attempt, ':')):]
}

// executed is told of a script call that the server has executed, just now. mu held.
func (w *simWorld) executed(from *simnet.Host, kind string, argv []string) {
	now := time.Now().UnixMicro()
	queue, _ := w.server.SortedSet(queueKey)
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(argv[i], 10, 64)
		return n
	}
	asking := argv[0]
	switch kind {
	case "lock":
		ticket, queued := queue[asking]
		e := w.waiting[asking]
		void := now > number(2)
		if void && number(2) > 0 {
			w.late.Add(1)
		}
		switch {
		case queued && (e == nil || e.ticket != ticket):
			if w.over[asking] != "" || void {
				w.fail("%s stands in the queue: it is too late (%v), %s", short(asking), void, w.over[asking])
			}
			if e != nil && e.alive > now {
				w.fail("%s lost its place", short(asking))
			}
			w.arrived++
			w.waiting[asking] = &simEntry{w.arrived, now + number(5)*1000, ticket}
		case queued && !void:
			e.alive = max(e.alive, now+number(5)*1000)
		}
	case "release":
		if _, queued := queue[asking]; queued {
			w.fail("%s is released and stands in the queue", short(asking))
		}
		w.over[asking] = "it has left"
		delete(w.waiting, asking)
	case "heartbeat":
		for _, attempt := range argv[4:] {
			_, queued := queue[attempt] // or it comes too late, and revives nobody
			if e := w.waiting[attempt]; e != nil && queued {
				e.alive = now + number(1)*1000
			} else if queued {
				w.fail("a heartbeat put %s into the queue", short(attempt))
			}
		}
	}

	token := w.present()
	owner := ""
	if fields, err := w.server.HKeys(w.lock); err == nil {
		for _, f := range fields {
			if strings.Contains(f, ":") {
				owner = f
			}
		}
	}
	if token != 0 && token != w.token {
		if owner != asking {
			w.handed.Add(1)
		}
		w.granted(owner, token, now)
	}
	if owner != "" {
		w.log("%s %s %s: %s has it, %d; %d wait", from.Name, kind, short(asking), short(owner), token, len(queue))
	} else {
		w.log("%s %s %s: free; %d wait", from.Name, kind, short(asking), len(queue))
	}
	w.token = token
	for attempt, e := range w.waiting {
		if _, queued := queue[attempt]; queued {
			continue
		}
		if e.alive > now {
			w.fail("%s was dropped from the queue, and is known to live for another %d us", short(attempt), e.alive-now)
		}
		w.dropped.Add(1)
		delete(w.waiting, attempt)
	}
}

// granted checks that it was owner's turn. mu held.
func (w *simWorld) granted(owner string, token, now int64) {
	if highest := max(w.highest, w.last); token <= highest {
		w.fail("%s is granted %d after %d", short(owner), token, highest)
	}
	w.highest = token
	w.tokens = append(w.tokens, token)
	if why := w.over[owner]; why != "" {
		w.fail("%s is granted %d, but %s", short(owner), token, why)
	}
	w.grants[token] = owner
	w.moved = time.Now()
	mine := w.waiting[owner]
	delete(w.waiting, owner)
	for attempt, e := range w.waiting {
		if e.alive > now && (mine == nil || e.number < mine.number) {
			w.fail("%s is granted %d before its turn: %s came earlier", short(owner), token, short(attempt))
		}
	}
}

// call names the script that a command runs, and its arguments.
func (s simScripts) call(c []string) (kind string, argv []string) {
	if len(c) < 3 {
		return "", nil
	}
	switch c[0] {
	case "evalsha":
		kind = s[c[1]]
	case "eval":
		kind = s[redis.NewScript(c[1]).Hash()]
	}
	keys, err := strconv.Atoi(c[2])
	if err != nil {
		return "", nil
	}
	return kind, c[3+keys:]
}

// commands reads RESP arrays of bulk strings, as clients send them.
func commands(p []byte) (all [][]string) {
	number := func() int {
		line, rest, _ := bytes.Cut(p, []byte("\r\n"))
		p = rest
		n, err := strconv.Atoi(string(line[1:]))
		if err != nil {
			panic(err)
		}
		return n
	}
	for len(p) > 0 {
		c := make([]string, number())
		for i := range c {
			n := number()
			c[i], p = string(p[:n]), p[n+2:]
		}
		all = append(all, c)
	}
	return all
}
