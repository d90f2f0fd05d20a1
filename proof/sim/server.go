package sim

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/proof/simnet"
)

// A server is a miniredis with a clock of its own and its own network.
type server struct {
	*miniredis.Miniredis
	other  *miniredis.Miniredis // another server behind the same endpoint, whose data never change
	w      *world
	number int
	net    *simnet.Net
	rate   float64 // rate of its clock; 1 is right

	mu    sync.Mutex    // guards the fields below; no other mutex is locked while it is held
	ahead time.Duration // how far the clock was ahead at the start, less the time by which it was set back
	steps []step
	hosts []*simnet.Host
	down  bool
	lives int // number of crashes, which end all connections

	known  map[string]bool // digests of the scripts that the server knows; guarded by world.mu
	forgot time.Time       // time of the last restart without data or with old data; guarded by world.mu
}

func newServer(w *world, number int, faults simnet.Faults, rnd *rand.Rand) *server {
	s := &server{w: w, number: number, Miniredis: miniredis.NewMiniRedis(), other: miniredis.NewMiniRedis(),
		known: map[string]bool{}, rate: 1 + drift*(2*rnd.Float64()-1),
		ahead: time.Duration((2*rnd.Float64() - 1) * float64([]time.Duration{time.Millisecond, time.Second,
			time.Minute}[rnd.IntN(3)]))}
	if w.hurried {
		s.rate = 1 + drift
	}
	s.tick()
	s.ClockTTL(true)
	s.net = simnet.New(uint64(w.seed)<<8|uint64(number), w.clock, faults, s.dial)
	s.other.ClockTTL(true)
	s.net.Other = s.other.Dial
	s.net.After = func(from *simnet.Host, message []byte) { w.served(s, from, message) }
	return s
}

// A conn is a connection at the server. It brings the clock of the server up to date when data arrive.
type conn struct {
	net.Conn
	s    *server
	life int
}

var errDown = errors.New("the server is down")

func (c conn) Write(p []byte) (int, error) {
	c.s.mu.Lock()
	over := c.s.down || c.s.lives != c.life
	c.s.mu.Unlock()
	if over {
		return 0, errDown
	}
	c.s.tick()
	return c.Conn.Write(p)
}

func (s *server) dial() (net.Conn, error) {
	s.mu.Lock()
	down, life := s.down, s.lives
	s.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: "sim", Err: errDown}
	}
	c, err := s.Dial()
	return conn{c, s, life}, err
}

// host returns the network between a process and this server.
func (s *server) host(name string) *simnet.Host {
	h := s.net.Host(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts = append(s.hosts, h)
	return h
}

func (s *server) connected() []*simnet.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.hosts)
}

func (s *server) away() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *server) crash() {
	s.mu.Lock()
	s.down = true
	s.lives++
	s.mu.Unlock()
	for _, h := range s.connected() {
		h.Cut()
	}
}

// restart starts the server again. If from is nil, the server has its data from before. Otherwise, it has the
// data of the snapshot from.
func (s *server) restart(from snapshot) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return s.Dial() }})
	if err := rdb.ScriptFlush(bg).Err(); err != nil {
		panic(err)
	}
	_ = rdb.Close()
	s.w.mu.Lock()
	s.known = map[string]bool{}
	if from != nil {
		s.tick()
		s.FlushAll()
		s.restore(from)
		s.forgot = time.Now()
		for _, l := range s.w.locks {
			if slices.Contains(l.on, s) {
				l.rules.forgotten(s)
			}
		}
	}
	s.w.mu.Unlock()
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
}

// A snapshot has the data of a server at some time. A snapshot without data is not nil.
type snapshot map[string]record

type record struct {
	fields  map[string]string
	scores  map[string]float64
	expires time.Time // time of the expiry by the server's clock
}

func (s *server) save() snapshot {
	snap := snapshot{}
	now := time.UnixMicro(s.tick())
	for _, key := range s.Keys() {
		r := record{expires: now.Add(s.TTL(key))}
		switch s.Type(key) {
		case "hash":
			r.fields = map[string]string{}
			fields, _ := s.HKeys(key)
			for _, f := range fields {
				r.fields[f] = s.HGet(key, f)
			}
		case "zset":
			r.scores = s.scores(key)
		default:
			panic(s.Dump())
		}
		snap[key] = r
	}
	return snap
}

// scores returns a copy of a sorted set, because miniredis returns its own map. No request may be in flight.
func (s *server) scores(key string) map[string]float64 {
	own, _ := s.SortedSet(key)
	scores := maps.Clone(own)
	s.tick() // locks the mutex of miniredis, so that the race detector knows an order for later changes
	return scores
}

func (s *server) restore(snap snapshot) {
	now := time.UnixMicro(s.tick())
	for key, r := range snap {
		left := r.expires.Sub(now)
		if left <= 0 {
			continue
		}
		for f, v := range r.fields {
			s.HSet(key, f, v)
		}
		for member, score := range r.scores {
			_, _ = s.ZAdd(key, score, member)
		}
		s.SetTTL(key, left)
	}
}

// restarts lets the servers of a stream crash and come back, one after another. streams is the number of
// streams. Each server belongs to one of them.
func (w *world) restarts(stream, streams int, stop <-chan struct{}) {
	rnd := w.rand(uint64(50 + stream))
	var own []*server
	for i := stream; i < len(w.servers); i += streams {
		own = append(own, w.servers[i])
	}
	between := 8 * time.Second
	if w.redlock() {
		between = 5 * time.Second
	}
	for {
		select {
		case <-stop:
			return
		case <-time.After(w.clock.Until(upTo(rnd, between))):
		}
		s := own[rnd.IntN(len(own))]
		var snap snapshot
		how := []string{"kept", "empty", "old"}[rnd.IntN(3)]
		away := upTo(rnd, 200*time.Millisecond, 3*time.Second)
		switch how {
		case "old":
			snap = s.save()
			w.sleep(upTo(rnd, 100*time.Millisecond, 3*time.Second))
		case "empty":
			snap = snapshot{}
		}
		if w.redlock() && how != "kept" {
			away += longest + longest/50 // the documentation of RedLock requires this
		}
		w.say("server %d is down for %v; its data then: %s", s.number, away, how)
		w.counts.Add("restarts, " + how)
		s.crash()
		w.sleep(away)
		s.restart(snap)
		w.say("server %d is back; its data: %s", s.number, how)
	}
}

// Close closes the server, and the other server behind the same endpoint.
func (s *server) Close() {
	s.Miniredis.Close()
	s.other.Close()
}
