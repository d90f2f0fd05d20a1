package multilock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockline/lockline/internal/simnet"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

var (
	redSeeds = flag.Int("redlock.seeds", 0, "how many seeds the simulation of RedLock runs; 0: up to 60, as many as begin within some seconds")
	redSeed  = flag.Int64("redlock.seed", -1, "the one seed that it runs")
	redFrom  = flag.Int64("redlock.from", 1, "the first of the seeds")
)

const (
	redSimTime    = 6 * time.Second // of whoever waits for the test, in real time
	redSimLease   = 3 * time.Second
	redSimServers = 5
	redSimActors  = 2 // of each of the three processes
	// redSimDrift is by how much a server's clock is fast or slow at most: less than the margin of 1 %.
	redSimDrift = 0.008
	// redSimGap bounds, when all is well, for how long nobody has the lock while somebody waits.
	redSimGap = 2 * time.Second
	// redSimGrace is what it takes until the last of the faults is over.
	redSimGrace = 10 * time.Second
)

// Processes on networks that lose, delay and cut, with servers that crash and whose
// clocks differ, never hold the lock together; their tokens grow; and when all is well again, so is the lock.
func TestWhateverNetworkAndServersDoRedLockKeepsItsPromises(t *testing.T) {
	redis.SetLogger(redSilence{})
	var total redSimStats
	run := func(t *testing.T, seed int64) {
		total.seeds.Add(1)
		failure := redSimulate(t, seed, &total)
		if failure == "" {
			return
		}
		again := 0 // the order of goroutines that wake at one instant is not the seed's
		for range 3 {
			if redSimulate(t, seed, &total) != "" {
				again++
			}
		}
		t.Errorf("seed %d (it failed again in %d of 3 runs): %s", seed, again, failure)
	}
	t.Run("seeds", func(t *testing.T) {
		if *redSeed >= 0 {
			run(t, *redSeed)
			return
		}
		n, start := *redSeeds, time.Now()
		if n == 0 {
			n = 60
		}
		for i := range int64(n) {
			t.Run(fmt.Sprint(*redFrom+i), func(t *testing.T) {
				t.Parallel()
				if *redSeeds != 0 || time.Since(start) < redSimTime {
					run(t, *redFrom+i)
				}
			})
		}
	})
	t.Log(&total)
	if total.entered.Load() > 2_000 { // or a quiet world proves nothing
		for what, n := range map[string]*atomic.Int64{"lost": &total.lost, "failed": &total.failed, "crashed process": &total.crashed,
			"crashed server": &total.down, "emptied server": &total.emptied, "second round": &total.raised} {
			if n.Load() == 0 {
				t.Errorf("there is no %s in all seeds", what)
			}
		}
	}
}

type redSilence struct{}

func (redSilence) Printf(context.Context, string, ...any) {}

// redSimStats tell whether the simulation meets what it is about.
type redSimStats struct {
	seeds, entered, lost, failed, crashed, down, emptied, raised atomic.Int64
}

func (s *redSimStats) String() string {
	return fmt.Sprintf("%d seeds, %d entries, %d lost, %d failed, %d processes and %d servers crashed, %d of these came back empty, %d second rounds",
		s.seeds.Load(), s.entered.Load(), s.lost.Load(), s.failed.Load(), s.crashed.Load(), s.down.Load(), s.emptied.Load(), s.raised.Load())
}

// redWorld is one seed's run.
type redWorld struct {
	*redSimStats
	seed    int64
	start   time.Time
	servers []*redServer
	procs   sync.WaitGroup

	mu       sync.Mutex // guards all below; held for moments
	events   []string
	failure  string
	ending   bool
	believed map[*redHeld]struct{}
	last     int64
	kept     []*rlock.Hold
	asking   map[*redProc]int
	quiet    time.Time // from when on all is well; zero before
	free     time.Time // when somebody was last inside
}

// redServer is a server with a clock of its own, and the network around it.
type redServer struct {
	*miniredis.Miniredis
	net   *simnet.Net
	start time.Time
	ahead time.Duration
	rate  float64

	mu    sync.Mutex // guards hosts and down
	hosts []*simnet.Host
	down  bool
}

// tick brings the server's clock up to date.
func (s *redServer) tick() {
	s.SetTime(s.start.Add(s.ahead + time.Duration(float64(time.Since(s.start))*s.rate)))
}

// redConn is a connection as the server has it: its clock is looked at when something arrives.
type redConn struct {
	net.Conn
	s *redServer
}

func (c redConn) Write(p []byte) (int, error) {
	c.s.tick()
	return c.Conn.Write(p)
}

func (s *redServer) dial() (net.Conn, error) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: "sim", Err: errors.New("the server is down")}
	}
	c, err := s.Dial()
	return redConn{c, s}, err
}

// crash takes the server away until up.
func (s *redServer) crash(down bool) {
	s.mu.Lock()
	s.down = down
	hosts := slices.Clone(s.hosts)
	s.mu.Unlock()
	if down {
		for _, h := range hosts {
			h.Cut()
		}
	}
}

// redHeld is a hold that its holder believes in until it gives it up or is told.
type redHeld struct {
	who   string
	ctx   context.Context
	hold  *rlock.Hold
	token int64
}

func (h *redHeld) valid() bool { return h.hold.Err() == nil || h.ctx.Err() == nil }

// redProc is a process, while it lives.
type redProc struct {
	name     string
	hosts    []*simnet.Host
	clients  []*redis.Client
	sessions []*rlock.Session
	over     atomic.Bool
}

func redSimulate(t *testing.T, seed int64, stats *redSimStats) (failure string) {
	defer func() { // what is left in a bubble panics
		if p := recover(); p != nil {
			failure += fmt.Sprintf("\npanic: %v", p)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := &redWorld{redSimStats: stats, seed: seed, start: time.Now(), believed: map[*redHeld]struct{}{}, asking: map[*redProc]int{}, free: time.Now()}
		w.run()
		failure = w.failure
	})
	return failure
}

func (w *redWorld) rand(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(w.seed), stream))
}

// log notes an event. mu held.
func (w *redWorld) log(format string, args ...any) {
	w.events = append(w.events, fmt.Sprintf("%12.6f ", float64(time.Since(w.start).Nanoseconds())/1e6)+fmt.Sprintf(format, args...))
}

func (w *redWorld) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log(format, args...)
}

// fail notes the first violation. mu held.
func (w *redWorld) fail(format string, args ...any) {
	w.log("VIOLATION: "+format, args...)
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...) + "\n(milliseconds since the start)\n" + strings.Join(w.events[max(0, len(w.events)-80):], "\n")
	}
}

func (w *redWorld) run() {
	rnd := w.rand(0)
	harsh := rnd.Float64() * rnd.Float64()
	for i := range redSimServers {
		s := &redServer{Miniredis: miniredis.NewMiniRedis(), start: w.start, rate: 1 + redSimDrift*(2*rnd.Float64()-1),
			ahead: time.Duration((2*rnd.Float64() - 1) * float64([]time.Duration{time.Millisecond, time.Second, time.Minute}[rnd.IntN(3)]))}
		s.ClockTTL(true)
		s.net = simnet.New(uint64(w.seed)<<8|uint64(i), simnet.Faults{Latency: 5 * time.Millisecond, Spike: 0.1 * harsh, SpikeTo: time.Second,
			CutRequest: 0.05 * harsh, CutReply: 0.1 * harsh, Deafen: 0.03 * harsh, LosePush: 0.3 * harsh, Late: 0.5, LateBy: 3 * time.Second}, s.dial)
		w.servers = append(w.servers, s)
	}
	stop := make(chan struct{})
	var faults sync.WaitGroup
	var mu sync.Mutex // guards living
	living := map[int]*redProc{}
	for i := range 3 {
		faults.Go(func() {
			rnd := w.rand(uint64(1 + i))
			for life := 0; ; life++ {
				p := w.boot(fmt.Sprintf("%c%d", 'A'+i, life))
				for a := range redSimActors {
					w.procs.Go(func() { w.act(p, fmt.Sprintf("%s.%d", p.name, a), w.rand(uint64(100+i*1000+life*10+a))) })
				}
				mu.Lock()
				living[i] = p
				mu.Unlock()
				if !w.afflict(p, rnd, harsh, stop) {
					return
				}
				time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
			}
		})
	}
	// At most two servers are down at one time.
	var down sync.WaitGroup
	for i := range 2 {
		down.Go(func() { w.crashes(i, stop) })
	}
	time.Sleep(8*time.Second + time.Duration(rnd.Int64N(int64(12*time.Second))))
	close(stop)
	faults.Wait()
	down.Wait()
	for _, s := range w.servers {
		s.net.SetFaults(simnet.Faults{Latency: 5 * time.Millisecond})
		for _, h := range s.hosts {
			h.Heal()
		}
	}
	w.mu.Lock()
	w.log("all is well from here on")
	w.quiet = time.Now().Add(redSimGrace)
	w.mu.Unlock()
	for end := time.Now().Add(redSimGrace + 5*time.Second); time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		w.mu.Lock()
		w.check()
		w.mu.Unlock()
	}
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	for _, p := range living {
		w.close(p)
	}
	time.Sleep(100 * time.Millisecond)
	w.leftBehind(redMemory)
	w.procs.Wait()
	time.Sleep(30 * time.Minute)
	w.leftBehind()
	for _, s := range w.servers {
		s.Close()
	}
	runtime.KeepAlive(w.kept)
}

func (w *redWorld) leftBehind(except ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.servers {
		s.tick()
		for _, key := range s.Keys() {
			if !slices.Contains(except, key) {
				w.fail("server %d: %q is left behind: %s", i, key, s.Dump())
			}
		}
	}
}

func (w *redWorld) boot(name string) *redProc {
	p := &redProc{name: name}
	for _, s := range w.servers {
		h := s.net.Host(name)
		s.mu.Lock()
		s.hosts = append(s.hosts, h)
		s.mu.Unlock()
		rdb := redis.NewClient(&redis.Options{
			Addr:            fmt.Sprintf("127.0.0.1:%d", 1+len(p.hosts)), // never dialed, but looked up
			Dialer:          h.Dial,
			DialTimeout:     300 * time.Millisecond,
			ReadTimeout:     300 * time.Millisecond,
			DialerRetries:   1,
			DisableIdentity: true,
			Protocol:        2,
			// The handshake about maintenance holds a mutex while it waits for the server: a bubble would hang.
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			ReadBufferSize:           4096, WriteBufferSize: 16 << 10,
			PipelineReadBufferSize: 4096, PipelineWriteBufferSize: 16 << 10,
		})
		session, err := rlock.NewSession(rdb, rlock.WithLogger(quiet), rlock.WithWatchdogTimeout(redSimLease))
		if err != nil {
			panic(err)
		}
		p.hosts, p.clients, p.sessions = append(p.hosts, h), append(p.clients, rdb), append(p.sessions, session)
	}
	return p
}

// afflict does something to a process now and then, and reports whether another one takes its place.
func (w *redWorld) afflict(p *redProc, rnd *rand.Rand, harsh float64, stop <-chan struct{}) (again bool) {
	for {
		select {
		case <-stop:
			return false
		case <-time.After(time.Second + time.Duration(rnd.Int64N(int64(6*time.Second)))):
		}
		switch r := rnd.Float64(); {
		case r < 0.12:
			w.say("%s crashes", p.name)
			w.crashed.Add(1)
			p.over.Store(true)
			for _, h := range p.hosts {
				h.Kill()
			}
			w.procs.Go(func() { // it knows nothing of that; but in the end nothing may run any more
				time.Sleep(10 * time.Second)
				w.shut(p)
			})
			return true
		case r < 0.2:
			w.say("%s closes", p.name)
			w.close(p)
			return true
		default: // some of its connections
			for i, h := range p.hosts {
				switch q := rnd.Float64(); {
				case q < 0.3*harsh:
					d := time.Duration(rnd.Int64N(int64(6 * time.Second)))
					w.say("%s and server %d are parted for %v", p.name, i, d)
					h.BlackHole(d)
				case q < 0.3:
					h.Cut()
				}
			}
		}
	}
}

func (w *redWorld) shut(p *redProc) {
	for _, s := range p.sessions {
		_ = s.Close()
	}
	for _, c := range p.clients {
		_ = c.Close()
	}
}

func (w *redWorld) close(p *redProc) {
	p.over.Store(true)
	start := time.Now()
	w.shut(p)
	if took := time.Since(start); took > 20*time.Second {
		w.mu.Lock()
		w.fail("%s: Close took %v", p.name, took)
		w.mu.Unlock()
	}
}

// crashes takes servers down, one after another. One that comes back empty stays away for the longest lease.
func (w *redWorld) crashes(stream int, stop <-chan struct{}) {
	rnd := w.rand(uint64(50 + stream))
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rnd.Int64N(int64(5 * time.Second)))):
		}
		i := 2*rnd.IntN(2) + stream // each stream has servers of its own
		s := w.servers[i]
		w.down.Add(1)
		s.crash(true)
		d := time.Duration(rnd.Int64N(int64(4 * time.Second)))
		empty := rnd.IntN(3) == 0
		if empty {
			w.emptied.Add(1)
			d += redSimLease + redSimLease/50
		}
		w.say("server %d is down for %v; empty then: %v", i, d, empty)
		time.Sleep(d)
		if empty {
			s.FlushAll()
		}
		s.crash(false)
	}
}

// act is one goroutine of a process that locks and unlocks.
func (w *redWorld) act(p *redProc, who string, rnd *rand.Rand) {
	m := multilock.NewRedLock("x", p.sessions...)
	for {
		time.Sleep(time.Duration(rnd.Int64N(int64([]time.Duration{20 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}[rnd.IntN(3)]))))
		w.mu.Lock()
		over := w.ending || p.over.Load()
		w.mu.Unlock()
		if over {
			return
		}
		call := m.Lock
		if rnd.IntN(8) == 0 {
			call = m.TryLock
		}
		var options []rlock.Option
		if rnd.IntN(6) == 0 {
			options = append(options, rlock.WithLease(300*time.Millisecond+time.Duration(rnd.Int64N(int64(2*time.Second)))))
		}
		ctx, cancel := context.WithCancel(bg)
		if rnd.IntN(6) == 0 {
			t := time.AfterFunc(time.Duration(rnd.Int64N(int64(2*time.Second))), cancel)
			defer t.Stop()
		}
		w.mu.Lock()
		if len(options) == 0 {
			w.asking[p]++
		}
		w.mu.Unlock()
		held, hold, err := call(ctx, options...)
		w.mu.Lock()
		if len(options) == 0 {
			if w.asking[p]--; w.asking[p] == 0 {
				delete(w.asking, p)
			}
		}
		if err != nil {
			w.refused(p, who, err)
			w.mu.Unlock()
			cancel()
			continue
		}
		h := &redHeld{who, held, hold, hold.Token()}
		w.entry(h)
		w.mu.Unlock()

		d := time.Duration(rnd.Int64N(int64([]time.Duration{5 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond}[rnd.IntN(3)])))
		if rnd.IntN(20) == 0 {
			d *= 10 // is renewed
		}
		select {
		case <-time.After(d):
		case <-held.Done():
		}
		w.mu.Lock()
		w.check()
		valid := h.valid()
		delete(w.believed, h)
		w.log("%s: unlocks %d, valid: %v", who, h.token, valid)
		w.free = time.Now()
		w.mu.Unlock()
		err = hold.Unlock(bg)
		cancel()
		w.mu.Lock()
		w.log("%s: unlocked: %v", who, err)
		if err == nil && !valid && !p.over.Load() {
			w.fail("%s: Unlock of a lost hold: nil", who)
		}
		if err != nil && valid && w.well() && !p.over.Load() {
			w.fail("%s: Unlock: %v", who, err)
		}
		w.mu.Unlock()
	}
}

// refused checks why somebody did not get in. mu held.
func (w *redWorld) refused(p *redProc, who string, err error) {
	w.log("%s: %v", who, err)
	switch {
	case p.over.Load(), errors.Is(err, context.Canceled), errors.Is(err, rlock.ErrLocked):
	case errors.Is(err, rlock.ErrLost), errors.Is(err, rlock.ErrClosed):
		w.fail("%s: %v", who, err)
	default:
		w.failed.Add(1)
		if w.well() {
			w.fail("%s: %v", who, err)
		}
	}
}

// well: there were no faults for long. mu held.
func (w *redWorld) well() bool { return !w.quiet.IsZero() && !time.Now().Before(w.quiet) }

// entry checks that whoever got in may be in. mu held.
func (w *redWorld) entry(h *redHeld) {
	w.entered.Add(1)
	w.log("%s: entered, %d, until %v", h.who, h.token, h.hold.Deadline().Sub(w.start))
	if h.token <= w.last {
		w.fail("%s: entered with %d after %d", h.who, h.token, w.last)
	}
	w.last = max(w.last, h.token)
	for other := range w.believed {
		if other.valid() {
			w.fail("%s entered with %d, and %s is inside with %d", h.who, h.token, other.who, other.token)
		}
	}
	if slices.ContainsFunc(w.servers, func(s *redServer) bool { // its first proposal was another
		t := s.HGet(redKey, "t")
		return t != "" && t != fmt.Sprint(h.token)
	}) {
		w.raised.Add(1)
	}
	w.kept = append(w.kept, h.hold)
	w.believed[h] = struct{}{}
	w.check()
}

// check looks at who believes to hold, and at who waits. mu held.
func (w *redWorld) check() {
	for h := range w.believed {
		if !h.valid() {
			w.lost.Add(1)
			w.log("%s: %d is lost", h.who, h.token)
			delete(w.believed, h)
			w.free = time.Now()
			continue
		}
		w.majority(h)
	}
	if len(w.believed) > 0 {
		w.free = time.Now()
	}
	if !w.well() {
		return
	}
	for p := range w.asking {
		if since := time.Since(w.free); since > redSimGap && !p.over.Load() {
			w.fail("for %v nobody has had the lock, and %s waits", since, p.name)
		}
	}
}

// majority checks the stronger half of mutual exclusion: whoever believes to hold
// is the only one that a majority of the servers has, and they have its token. mu held.
func (w *redWorld) majority(h *redHeld) {
	owners := map[string]int{}
	stored := 0
	for _, s := range w.servers {
		s.tick()
		fields, _ := s.HKeys(redKey)
		for _, f := range fields {
			if strings.Contains(f, ":") {
				owners[f]++
			}
		}
		var last int64
		_, _ = fmt.Sscan(s.HGet(redMemory, "t"), &last)
		if last >= h.token {
			stored++
		}
	}
	most := 0
	for _, n := range owners {
		most = max(most, n)
	}
	if most <= redSimServers/2 {
		w.fail("%s believes to hold %d until %v; the servers say %v", h.who, h.token, h.hold.Deadline().Sub(w.start), owners)
	}
	if stored == 0 {
		w.fail("%s has %d, which no server has stored", h.who, h.token)
	}
}
