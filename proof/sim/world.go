package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/proof/simnet"
	"github.com/lockline/lockline/rlock"
)

const (
	lease    = 3 * time.Second // WithWatchdogTimeout of all sessions
	liveness = 2 * time.Second // WithWaiterTimeout of all sessions

	// heartbeat is the longest time between two requests of a waiter, including the time to send a request
	// again.
	heartbeat = liveness * 3 / 4

	longest  = 4 * time.Second        // longest lease that is requested
	together = 250 * time.Millisecond // interval at which the goroutines of a process lock at the same time
	lateBy   = 3 * time.Second        // longest delay of a message

	// drift is the largest difference of the rate of a server's clock from 1. It stays below the library's
	// margin for drift.
	drift = 0.008

	// grace is the time after which the last effects of faults have ended. Such effects are leases of dead
	// processes, delayed messages, and subscriptions that are lost without notice.
	grace = 10 * time.Second
)

var (
	bg    = context.Background()
	quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// A world is the simulation of one seed.
type world struct {
	Kind
	counts   *Counts
	seed     int64
	start    time.Time
	clock    *simnet.Clock
	servers  []*server
	locks    []*lock
	asTeam   bool          // the goroutines of a process lock at the same time
	turn     time.Duration // WithHandover of the sessions
	linger   time.Duration // WithLinger of the sessions
	batching int           // see testlock.Batching
	alike    bool          // many goroutines want the same set of locks
	deaf     bool          // messages are lost even after the faults have ended
	operated bool          // operators free locks by force now and then
	greedy   bool          // goroutines lock again at once, so a waiter starves if it is always overtaken
	stepped  bool          // the clocks of servers are set back now and then
	freezing bool          // processes are stopped and continued now and then

	// hurried means that the clocks of the servers are as fast as allowed, that the network is quick, and
	// that leases run out. So a margin that is too small causes a violation.
	hurried bool

	mu      sync.Mutex // guards the fields below and all locks; it is held for moments only
	events  []event
	failure *Failure               // the first failure
	ending  bool                   // actors must stop
	quiet   time.Time              // time from which on nothing may be late; zero: there may still be faults
	asking  map[*lockCall]struct{} // calls of Lock, except for nested calls
	trying  map[*lockCall]struct{} // TryLock and nested calls, of RedLocks and locks with permits
	kept    []claim                // all holds, so that the garbage collector frees none of a crashed process
}

type event struct {
	at     time.Duration
	format string
	args   []any
}

func (e event) String() string {
	return fmt.Sprintf("%12.6f ", float64(e.at.Nanoseconds())/1e6) + fmt.Sprintf(e.format, e.args...)
}

// A Failure is a broken promise.
type Failure struct {
	What   string
	events []event
}

// Log returns the last events before the failure, with their times in ms since the start. most is the largest
// number of these events.
func (f *Failure) Log(most int) string {
	var lines []string
	for _, e := range f.events[max(0, len(f.events)-most):] {
		lines = append(lines, e.String())
	}
	return strings.Join(lines, "\n")
}

func newWorld(k Kind, seed int64, counts *Counts) *world {
	return &world{Kind: k, counts: counts, seed: seed, start: time.Now(), clock: simnet.NewClock(),
		asking: map[*lockCall]struct{}{}, trying: map[*lockCall]struct{}{}}
}

func (w *world) rand(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(w.seed), stream))
}

func (w *world) sleep(d time.Duration) { time.Sleep(w.clock.Until(d)) }

// upTo returns a random time below one of the limits, which is chosen at random.
func upTo(rnd *rand.Rand, most ...time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(most[rnd.IntN(len(most))])))
}

// log records an event. The arguments must not change later. The caller must hold w.mu.
func (w *world) log(format string, args ...any) {
	w.events = append(w.events, event{time.Since(w.start), format, args})
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log(format, args...)
}

// fail records a broken promise. Only the first one counts. The caller must hold w.mu.
func (w *world) fail(format string, args ...any) {
	w.log("VIOLATION: "+format, args...)
	if w.failure == nil {
		w.failure = &Failure{What: fmt.Sprintf(format, args...), events: w.events}
	}
}

// well reports whether all effects of faults have ended. The caller must hold w.mu.
func (w *world) well() bool { return !w.quiet.IsZero() && !time.Now().Before(w.quiet) }

func (w *world) run() {
	rnd := w.rand(0)
	// Some seeds have few faults, because a fault can hide the effect of another fault.
	harsh := rnd.Float64() * rnd.Float64()
	actors := w.actors
	if rnd.IntN(2) == 0 {
		w.asTeam, actors = true, w.crowd
	}
	w.turn = max(100*time.Microsecond, upTo(rnd, 2*time.Second)) // the least that WithHandover accepts
	if w.Kind.locks[0].permits() && rnd.IntN(3) == 0 {
		w.turn = 0
		w.greedy = w.asTeam
	}
	if rnd := w.rand(1 << 40); rnd.IntN(2) == 0 {
		w.linger = max(time.Millisecond, upTo(rnd, 2*time.Second))
	}
	w.batching = w.rand(1<<32).IntN(2) - 1 // requests share pipelines as often as possible, or never
	w.alike = w.most > 1 && rnd.IntN(2) == 0
	w.deaf = w.lossGap != 0 && rnd.IntN(2) == 0
	w.operated = rnd.IntN(3) == 0
	w.hurried = w.rand(1<<36).IntN(4) == 0
	near := w.rand(1<<39).IntN(3) == 0 // the network takes 1 ms
	if near {
		w.batching = -1
	}
	w.stepped = w.rand(1<<37).IntN(3) == 0
	w.freezing = w.rand(1<<38).IntN(3) == 0
	restarts := w.redlock() || rnd.IntN(3) == 0
	faults := simnet.Faults{Latency: w.latency, Late: 0.5, LateBy: lateBy, Spike: 0.1 * harsh,
		SpikeTo:    time.Second,
		CutRequest: 0.05 * harsh, CutReply: 0.1 * harsh, Deafen: 0.03 * harsh, LosePush: 0.5 * harsh}
	if w.hurried || near {
		faults.Latency = time.Millisecond
	}
	if !w.redlock() {
		faults.Mislead = 0.3 * harsh
	}
	for i := range w.Kind.servers {
		w.servers = append(w.servers, newServer(w, i, faults, rnd))
	}
	for _, p := range w.Kind.locks {
		w.locks = append(w.locks, newLock(w, p))
	}

	var afflicted, working sync.WaitGroup
	stop := make(chan struct{}) // closed when the faults end
	var mu sync.Mutex           // guards living
	living := map[int]*process{}
	for i := range 3 {
		afflicted.Go(func() {
			rnd, frozen := w.rand(uint64(1+i)), w.rand(1<<38+uint64(1+i))
			for life := 0; ; life++ {
				p := w.boot(fmt.Sprintf("%c%d", 'A'+i, life))
				for a := range actors {
					working.Go(func() {
						w.act(p, fmt.Sprintf("%s.%d", p.name, a), w.rand(uint64(100+i*1000+life*10+a)))
					})
				}
				if l, ok := w.locks[0].rules.(*elected); ok {
					working.Go(func() { l.observe(p, w.rand(uint64(10_000+i*1000+life))) })
				}
				mu.Lock()
				living[i] = p
				mu.Unlock()
				for alive := true; alive; {
					select {
					case <-stop:
						return
					case <-time.After(w.clock.Until(time.Second + upTo(rnd, 9*time.Second))):
					}
					if alive = w.afflict(p, rnd, harsh); alive && w.freezing && frozen.IntN(2) == 0 {
						w.freeze(p, frozen)
					}
				}
				w.sleep(upTo(rnd, 3*time.Second))
			}
		})
	}
	if rnd := w.rand(1 << 42); rnd.IntN(3) == 0 {
		working.Go(func() {
			w.nowAndThen(rnd, func() {
				if rnd.IntN(15) == 0 {
					w.dequeue(rnd)
				}
			})
		})
	}
	if rnd := w.rand(1 << 33); rnd.IntN(2) == 0 {
		working.Go(func() { w.forge(rnd) })
	}
	if rnd := w.rand(1 << 34); w.redlock() && rnd.IntN(2) == 0 {
		working.Go(func() { w.forgetOne(rnd) })
	}
	if restarts {
		// Each stream has servers of its own, and stops one of them at a time. So at most a minority of the
		// servers of a RedLock is down at the same time.
		streams := w.Kind.servers
		if w.redlock() {
			streams = (w.Kind.servers - 1) / 2
		}
		for i := range streams {
			afflicted.Go(func() { w.restarts(i, streams, stop) })
		}
	}
	if w.stepped {
		afflicted.Go(func() { w.setClocks(stop) })
	}
	w.sleep(8*time.Second + upTo(rnd, 14*time.Second))

	// From here on, there are no faults.
	close(stop)
	afflicted.Wait()
	// But in some seeds, messages are still lost.
	faults = simnet.Faults{Latency: faults.Latency / 2}
	if w.deaf {
		faults.LosePush = 0.2
	}
	for _, s := range w.servers {
		s.net.SetFaults(faults)
		for _, h := range s.connected() {
			h.Heal()
		}
	}
	w.mu.Lock()
	w.log("all is well from here on")
	rest := grace + w.setMost()
	w.quiet = time.Now().Add(rest)
	w.mu.Unlock()
	crashed := false
	for i := range int((rest + 6*time.Second) / (100 * time.Millisecond)) {
		w.sleep(100 * time.Millisecond)
		w.mu.Lock()
		often := 20
		if w.Kind.locks[0].permits() || w.Kind.locks[0].kind == 'j' {
			often = 100 // no session is notified, so progress cannot be checked for a while
		}
		// Waiters of a latch need not notice that it was deleted.
		if w.well() && !w.deaf && w.Kind.most == 1 && i%often == 0 && w.locks[0].kind != 'l' {
			w.locks[0].deleted()
		}
		if w.well() && i%20 == 10 {
			w.dequeue(rnd)
		}
		switch l := w.locks[0].rules.(type) {
		case *latched:
			if w.well() && !crashed {
				crashed = l.crashOne()
			}
		case *elected:
			if w.well() && i%20 == 10 {
				l.lose()
			}
		}
		w.progress()
		w.mu.Unlock()
	}
	// Some goroutines wait and some hold locks when their sessions close.
	for i := range 3 {
		w.close(living[i])
	}
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	w.sleep(100 * time.Millisecond) // messages in flight arrive
	var memories []string
	for _, l := range w.locks {
		memories = append(memories, l.memory)
		memories = append(memories, l.rules.lingering()...)
		if !l.evicted.IsZero() { // waiters whose places were deleted may have entries in :w
			memories = append(memories, l.key+":w")
		}
	}
	w.leftBehind(true, memories...)
	working.Wait()
	w.sleep(30 * time.Minute)
	w.leftBehind(false)
	for _, s := range w.servers {
		s.Close()
		n := &s.net.Counts
		w.counts.add("messages", n.Messages.Load())
		w.counts.add("faults: requests cut", n.CutRequests.Load())
		w.counts.add("faults: replies cut", n.CutReplies.Load())
		w.counts.add("faults: deafened", n.Deafened.Load())
		w.counts.add("faults: misled", n.Misled.Load())
		w.counts.add("faults: messages lost", n.LostPushes.Load())
		w.counts.add("faults: spikes", n.Spikes.Load())
		w.counts.add("faults: swallowed by black holes", n.Swallowed.Load())
		w.counts.add("faults: belated by black holes", n.Belated.Load())
	}
	w.counts.add("seconds of simulated time", int64(w.events[len(w.events)-1].at/time.Second))
	for _, hold := range w.kept { // otherwise the cleanup of a forgotten hold would keep the world
		switch hold := hold.(type) {
		case *rlock.Hold:
			_ = hold.Unlock(bg)
		case leads:
			_ = hold.Resign(bg)
		}
	}
}

// nowAndThen calls do again and again until the world ends. It holds w.mu during each call.
func (w *world) nowAndThen(rnd *rand.Rand, do func()) {
	for {
		w.sleep(upTo(rnd, 300*time.Millisecond))
		w.mu.Lock()
		if w.ending {
			w.mu.Unlock()
			return
		}
		do()
		w.mu.Unlock()
	}
}

// forge publishes forged messages. It knows all channels, names and attempts.
func (w *world) forge(rnd *rand.Rand) {
	w.nowAndThen(rnd, func() {
		l := w.locks[rnd.IntN(len(w.locks))]
		s := l.on[rnd.IntN(len(l.on))]
		now := s.tick()
		high := now + rnd.Int64N(1<<62)
		if rnd.IntN(2) == 0 { // a plausible token
			high = now + rnd.Int64N((11 * time.Hour).Microseconds())
		}
		channel, messages := l.key, []string(nil)
		switch l.kind {
		case 'j':
			channel, messages = "redisson_lock__channel:{"+l.name+"}", []string{"0", "1", "x"}
		case 'l':
			messages = []string{"Z", "D", "Z x", "D " + l.key, "L x 0",
				fmt.Sprint("L ", l.rules.(*latched).state.run, " ", rnd.IntN(100))}
		default:
			attempts := slices.Sorted(maps.Keys(l.waiting))
			if l.kind == 'q' {
				attempts = slices.Sorted(maps.Keys(s.scores(l.key + ":q")))
			}
			if len(attempts) == 0 {
				return
			}
			attempt := attempts[rnd.IntN(len(attempts))]
			session, _, _ := strings.Cut(attempt, ":")
			channel = "lockline:s:" + session
			messages = []string{attempt, fmt.Sprint(attempt, " ", now, " ", now, " 4000 AAAAAAAAAAAAAAAA"),
				fmt.Sprint(attempt, " ", high, " ", now, " 4000 AAAAAAAAAAAAAAAA"),
				fmt.Sprint(attempt, " ", high)}
		}
		w.counts.Add("forged messages")
		s.Publish(channel, messages[rnd.IntN(len(messages))])
	})
}

// forgetOne lets one server forget a RedLock now and then. It does so only if one process has the lock on all
// servers, and chooses the server where the lease ends first. The other servers are a majority, and have the
// lock for as long as the holder may consider it valid, even if the holder cannot renew it. If another server
// forgot the lock, two servers could be without the lock, because the holder may not have reached one of the
// others for a whole lease. A RedLock does not promise to withstand this. For one lease after a clock was set
// back, forgetOne does nothing, because the lease on another server may end first.
func (w *world) forgetOne(rnd *rand.Rand) {
	l := w.locks[0]
	set := func(s *server) bool { return s.setSince(time.Now().Add(-longest)) > 0 }
	w.nowAndThen(rnd, func() {
		if at, ok := l.endsFirst(); ok && !slices.ContainsFunc(l.on, set) {
			owner, _ := l.present(l.on[at])
			l.forgot[owner], l.forgotAt = true, time.Now()
			l.on[at].Del(l.key)
			l.owners[at] = ""
			w.counts.Add("forgotten by one server")
			w.log("server %d forgets %s", l.on[at].number, l.name)
		}
	})
}

// dequeue deletes by hand the queue of one lock on one server, or the hash of its waiters. While there are
// faults, it may delete the hash of the lock instead. Then only the clock makes new tokens higher, so dequeue
// does this only in worlds that set no clock back.
func (w *world) dequeue(rnd *rand.Rand) {
	l := w.locks[rnd.IntN(len(w.locks))]
	switch {
	case l.memory != "" || l.kind == 'l': // a lock of package redisson or a latch has no queue
	case w.quiet.IsZero() && !w.stepped && rnd.IntN(3) == 0:
		l.deleted()
	default:
		l.dequeued(l.on[rnd.IntN(len(l.on))], []string{":q", ":w"}[rnd.IntN(2)])
	}
}

func (w *world) redlock() bool { return w.Kind.locks[0].kind == 'q' }

// leftBehind checks that no key and no subscription is left on the servers. The keys in except may be left,
// and if free is true, the hashes of free locks, too.
func (w *world) leftBehind(free bool, except ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.servers {
		s.tick()
		for _, key := range s.Keys() {
			if !slices.Contains(except, key) && !(free && s.free(key)) {
				w.fail("%q is left behind on server %d: %s", key, s.number, s.Dump())
			}
		}
		if c := s.PubSubChannels("*"); len(c) > 0 {
			w.fail("subscriptions are left on server %d: %q", s.number, c)
		}
	}
}
