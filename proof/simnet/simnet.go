// Package simnet is an in-memory network for simulations in fake time (testing/synctest). It has connections
// to one server, with latency, losses, cuts and black holes that a seed decides.
//
// As with TCP, a direction of a connection loses everything from some byte on, never a piece in the middle.
// The messages of a direction arrive in order, some of them long after their sender has closed the
// connection. Each delivery has an instant of its own, so that the order of deliveries does not depend on the
// scheduler.
//
// A message is one Write of a client or of the server.
package simnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Faults configures the faults of messages. The numbers are probabilities for each message.
type Faults struct {
	Latency time.Duration // each message takes up to this long
	Spike   float64       // the message takes up to SpikeTo instead
	SpikeTo time.Duration

	CutRequest float64 // the request does not arrive, and the connection is cut
	CutReply   float64 // the request arrives, but its reply is lost, and the connection is cut
	Deafen     float64 // the reply and all later replies are lost, without a cut
	LosePush   float64 // a pub/sub message and all later ones are lost; in half of the cases, a cut follows
	Mislead    float64 // a connection that subscribes leads to the network's other server from then on
	Late       float64 // a message in a black hole arrives up to LateBy after the end of the black hole
	LateBy     time.Duration
}

// Counts counts messages and their faults.
type Counts struct {
	Messages                                      atomic.Int64
	CutRequests, CutReplies, Deafened, LostPushes atomic.Int64 // see Faults
	Spikes, Swallowed, Belated                    atomic.Int64 // numbers of messages, see transit
	Misled                                        atomic.Int64
}

// Net is the network around one server.
type Net struct {
	// After is called when the server has processed a message of a client, at an
	// instant at which nothing else happens.
	After func(from *Host, message []byte)

	Counts Counts

	// Other makes a connection to another server behind the same endpoint, for Faults.Mislead.
	Other func() (net.Conn, error)

	dial  func() (net.Conn, error)
	clock *Clock
	seed  uint64

	mu     sync.Mutex // guards faults and hosts
	faults Faults
	hosts  uint64
}

// New makes a network. dial makes a connection to the server. On this connection, the server's writes may
// block until the network has read them.
func New(seed uint64, clock *Clock, faults Faults, dial func() (net.Conn, error)) *Net {
	return &Net{dial: dial, clock: clock, seed: seed, faults: faults}
}

// SetFaults changes the faults of later messages.
func (n *Net) SetFaults(f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = f
}

func (n *Net) current() Faults {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults
}

// Host is one process's side of the network.
type Host struct {
	Name string
	n    *Net
	id   uint64

	mu    sync.Mutex // guards the fields below; locked after link.mu
	dials uint64
	dead  bool
	dark  [2]time.Time // time until which each Direction is in a black hole
	still time.Time    // time until which the host neither reads nor writes
	links map[*link]struct{}
}

// Direction is a direction of a connection.
type Direction int

const (
	Up   Direction = iota // direction to the server
	Down                  // direction from the server
)

func (n *Net) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts++
	return &Host{Name: name, n: n, id: n.hosts, links: map[*link]struct{}{}}
}

// Kill disconnects the host for good. Messages that it has sent may still arrive.
func (h *Host) Kill() {
	h.mu.Lock()
	h.dead = true
	h.mu.Unlock()
	h.Cut()
}

// BlackHole makes a black hole in these directions for d. Messages in it are lost, or arrive after its end.
func (h *Host) BlackHole(d time.Duration, directions ...Direction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, way := range directions {
		h.dark[way] = time.Now().Add(d)
	}
}

// Freeze stops the host for d and loses nothing. The host's earlier messages arrive. After d, the host reads
// all messages that have arrived meanwhile, and its own writes leave. Unlike in a stopped process, neither a
// Write nor Close blocks. The client may have a mutex locked, and a goroutine that waits for a mutex would
// stop the bubble's clock.
func (h *Host) Freeze(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.still = time.Now().Add(d)
}

// frozen returns the rest of the time for which the host is frozen.
func (h *Host) frozen() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, time.Until(h.still))
}

// Heal ends a black hole and cuts the connections that have lost a message,
// except for subscriptions, which may stay open without receiving messages.
func (h *Host) Heal() {
	h.mu.Lock()
	h.dark = [2]time.Time{}
	links := h.all()
	h.mu.Unlock()
	for _, l := range links {
		if l.broken() {
			l.cut()
		}
	}
}

// Cut cuts all open connections.
func (h *Host) Cut() {
	h.mu.Lock()
	links := h.all()
	h.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
}

func (h *Host) all() (links []*link) {
	for l := range h.links {
		links = append(links, l)
	}
	return links
}

func (h *Host) state(way Direction) (dead bool, dark time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead, max(0, time.Until(h.dark[way]))
}

// Dial has the type of redis.Options.Dialer.
func (h *Host) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	h.mu.Lock()
	h.dials++
	id := h.dials
	h.mu.Unlock()
	up := rand.New(rand.NewPCG(h.n.seed, h.id<<32|id<<1))
	wait := h.frozen() + within(up, h.n.current().Latency)
	dead, dark := h.state(Up)
	if _, down := h.state(Down); dark > 0 || down > 0 {
		wait = time.Hour // the dial waits until ctx ends
	}
	t := time.NewTimer(h.n.clock.Until(wait))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "sim", Err: os.ErrDeadlineExceeded}
	}
	if dead {
		return nil, &net.OpError{Op: "dial", Net: "sim", Err: syscall.ECONNREFUSED}
	}
	server, err := h.n.dial()
	if err != nil {
		return nil, err
	}
	l := &link{h: h, server: server, changed: make(chan struct{}), up: side{way: Up, rnd: up},
		down: side{way: Down, rnd: rand.New(rand.NewPCG(h.n.seed, h.id<<32|id<<1|1))}}
	h.mu.Lock()
	h.links[l] = struct{}{}
	h.mu.Unlock()
	go l.listen(server)
	if dead, _ := h.state(Up); dead { // the host was killed while it dialed
		l.cut()
	}
	return l, nil
}

func within(rnd *rand.Rand, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rnd.Int64N(int64(d)))
}

// link is the client's end of a connection.
type link struct {
	h *Host

	mu        sync.Mutex
	server    net.Conn
	sent      [][]byte // all messages up to SUBSCRIBE
	silent    bool     // replies of the other server are dropped, because they repeat earlier replies
	up, down  side
	subscribe bool
	in        []byte
	err       error // Read and Write return this error after the link is closed or cut
	gone      bool  // the server's side is closed
	deadline  time.Time
	changed   chan struct{} // closed, and replaced, by each change that a Read may wait for
}

// side is one direction.
type side struct {
	way  Direction
	rnd  *rand.Rand
	last time.Time // arrival of the last message
	lost bool      // all later messages are lost
}

// due returns the time that a message takes. It is at least d, and the message comes after the previous
// message. The caller must hold link.mu.
func (l *link) due(s *side, d time.Duration) time.Duration {
	d = l.h.n.clock.Until(max(d, time.Until(s.last)+1))
	s.last = time.Now().Add(d)
	return d
}

// transit decides at random whether a message is lost, and how long it takes. The caller must hold link.mu.
func (l *link) transit(s *side) (after time.Duration, lost bool) {
	f := l.h.n.current()
	dead, dark := l.h.state(s.way)
	n := &l.h.n.Counts
	n.Messages.Add(1)
	switch {
	case s.lost, dead, dark > 0 && s.rnd.Float64() >= f.Late:
		s.lost = true
		n.Swallowed.Add(1)
		return 0, true
	case dark > 0:
		n.Belated.Add(1)
		return dark + within(s.rnd, f.LateBy), false
	case s.rnd.Float64() < f.Spike:
		n.Spikes.Add(1)
		return within(s.rnd, f.SpikeTo), false
	}
	return within(s.rnd, f.Latency), false
}

func (l *link) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	if !l.subscribe {
		if bytes.Contains(p, []byte("\r\nsubscribe\r\n")) {
			l.subscribe = true
			if chance := l.h.n.current().Mislead; chance > 0 && l.up.rnd.Float64() < chance {
				l.mislead()
			}
		}
		l.sent = append(l.sent, bytes.Clone(p))
	}
	after, lost := l.transit(&l.up)
	if lost {
		return len(p), nil
	}
	after += l.h.frozen()
	f := l.h.n.current()
	requests := split(bytes.Clone(p))
	switch {
	case l.up.rnd.Float64() < f.CutRequest:
		l.h.n.Counts.CutRequests.Add(1)
		if len(requests) > 1 {
			l.deliver(requests[:l.up.rnd.IntN(len(requests))], after)
		}
		l.up.lost = true
		time.AfterFunc(l.due(&l.up, after), l.cut)
		return len(p), nil
	case l.up.rnd.Float64() < f.CutReply:
		l.h.n.Counts.CutReplies.Add(1)
		l.up.lost, l.down.lost = true, true
		l.deliver(requests, after)
		time.AfterFunc(l.due(&l.up, after+within(l.up.rnd, f.Latency)), l.cut)
		return len(p), nil
	}
	l.deliver(requests, after)
	return len(p), nil
}

// deliver delivers the requests of one Write to the server. Each request has an instant of its own, so
// requests of other clients may come in between. The caller must hold link.mu.
func (l *link) deliver(requests [][]byte, after time.Duration) {
	for _, r := range requests {
		time.AfterFunc(l.due(&l.up, after), func() { l.arrive(r) })
	}
}

// mislead makes the connection lead to the other server, and sends the earlier messages to this server again.
// The caller must hold link.mu.
func (l *link) mislead() {
	other, err := l.h.n.Other()
	if err != nil {
		return
	}
	l.h.n.Counts.Misled.Add(1)
	former := l.server
	l.server, l.silent = other, true
	time.AfterFunc(l.due(&l.up, 0), func() { _ = former.Close() })
	go l.listen(other)
	for _, message := range l.sent {
		l.deliver(split(message), 0)
	}
	time.AfterFunc(l.due(&l.up, 0), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.silent = false
	})
}

// arrive delivers a message to the server, even if the sender of the message is gone.
func (l *link) arrive(message []byte) {
	l.mu.Lock()
	server := l.server
	l.mu.Unlock()
	if _, err := server.Write(message); err != nil {
		return
	}
	time.Sleep(time.Nanosecond) // until the server is idle
	if l.h.n.After != nil {
		l.h.n.After(l.h, message)
	}
}

// listen reads from the server without delay, so that the server's writes never wait for the network.
func (l *link) listen(server net.Conn) {
	p := make([]byte, 1<<16)
	for {
		n, err := server.Read(p)
		if err != nil {
			if l.leadsTo(server) {
				l.cut()
			}
			return
		}
		l.depart(server, bytes.Clone(p[:n]))
	}
}

func (l *link) leadsTo(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server == server
}

func (l *link) depart(server net.Conn, message []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent || l.server != server {
		return
	}
	after, lost := l.transit(&l.down)
	if lost || l.err != nil {
		return
	}
	f := l.h.n.current()
	push := bytes.Contains(message[:min(len(message), 20)], []byte("\r\n$7\r\nmessage"))
	if chance := l.down.rnd.Float64(); push && chance < f.LosePush {
		l.h.n.Counts.LostPushes.Add(1)
		l.down.lost = true
		if chance < f.LosePush/2 {
			time.AfterFunc(l.due(&l.down, after), l.cut)
		}
		return
	} else if !push && chance < f.Deafen {
		l.h.n.Counts.Deafened.Add(1)
		l.down.lost = true
		return
	}
	time.AfterFunc(l.due(&l.down, after), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil {
			l.in = append(l.in, message...)
			l.change()
		}
	})
}

// change wakes each waiting Read. The caller must hold link.mu.
func (l *link) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (l.up.lost || l.down.lost) && !l.subscribe
}

// cut ends the connection for both sides. Messages that are in flight to the server still arrive.
func (l *link) cut() { l.end(io.EOF) }

// Close ends the connection. The server sees the end after all earlier messages.
func (l *link) Close() error {
	l.end(net.ErrClosed)
	return nil
}

func (l *link) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		l.change()
		l.h.mu.Lock()
		delete(l.h.links, l)
		l.h.mu.Unlock()
	}
	if !l.gone {
		l.gone = true
		server := l.server
		time.AfterFunc(l.due(&l.up, 0), func() { _ = server.Close() })
	}
}

func (l *link) Read(p []byte) (int, error) {
	frozen := false
	for {
		still := l.h.frozen()
		l.mu.Lock()
		err, changed, deadline := l.err, l.changed, l.deadline
		if still > 0 && err == nil {
			l.mu.Unlock()
			frozen = true
			t := time.NewTimer(l.h.n.clock.Until(still))
			select {
			case <-changed:
			case <-t.C:
			}
			t.Stop()
			continue
		}
		late := !deadline.IsZero() && !time.Now().Before(deadline)
		if frozen && late && l.down.rnd.IntN(2) == 0 { // by chance, the deadline comes before the message
			l.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		if len(l.in) > 0 && !errors.Is(err, net.ErrClosed) {
			n := copy(p, l.in)
			l.in = l.in[n:]
			l.mu.Unlock()
			return n, nil
		}
		l.mu.Unlock()
		switch {
		case err != nil:
			return 0, err
		case late:
			return 0, os.ErrDeadlineExceeded
		}
		var due <-chan time.Time
		if !deadline.IsZero() {
			t := time.NewTimer(time.Until(deadline))
			defer t.Stop()
			due = t.C
		}
		select {
		case <-changed:
		case <-due:
		}
	}
}

func (l *link) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
	l.change()
	return nil
}

func (l *link) SetDeadline(t time.Time) error    { return l.SetReadDeadline(t) }
func (l *link) SetWriteDeadline(time.Time) error { return nil } // a Write never waits
func (l *link) LocalAddr() net.Addr              { return addr(l.h.Name) }
func (l *link) RemoteAddr() net.Addr             { return addr("server") }

type addr string

func (addr) Network() string  { return "sim" }
func (a addr) String() string { return string(a) }
