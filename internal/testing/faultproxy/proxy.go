// Package faultproxy is a RESP-aware proxy for tests, over TCP or in memory. It stands between
// clients and one server, counts requests and messages as clients see
// them (commandstats also counts what scripts call), and breaks
// connections at chosen requests.
//
// In memory it needs no socket and runs in fake time.
//
// It understands commands that get one reply each, and pub/sub; not
// MONITOR, CLIENT REPLY OFF, replication, inline commands or TLS.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// patience limits how long a dial or a [Proxy.Replay] waits for the server.
const patience = 10 * time.Second

// Proxy forwards connections to one server. Its methods may be called at any time, from any goroutine.
type Proxy struct {
	t        testing.TB
	addr     string
	listener net.Listener    // nil: in memory
	ctx      context.Context // ends with the proxy
	wg       sync.WaitGroup  // the goroutines of the proxy and of its connections

	// Guards all below, and the lost flags of conns; taken after conn.mu, if both.
	mu        sync.Mutex
	dial      func(context.Context) (net.Conn, error) // to the server
	conns     map[*conn]struct{}
	onRequest func(*Request) Action
	onReply   func(Request)
	requests  []Request
	pushed    []Message
	held      map[int]Request
	undecided map[int]bool // requests that onRequest is being asked about
	decided   *sync.Cond   // one of them is not any more
	lastSeq   int
	delay     time.Duration
	refuse    bool
	hole      [2]bool       // by direction
	frozen    chan struct{} // closed by Thaw; nil: the server is not frozen
	lastConn  int

	unrecorded bool // requests and messages are not recorded
}

// New starts a proxy for the server at the address upstream. It ends, and
// its connections with it, when the test does.
func New(t testing.TB, upstream string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	dialer := net.Dialer{Timeout: patience}
	p := start(t, listener.Addr().String(), func(ctx context.Context) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", upstream)
	})
	p.listener = listener
	p.wg.Go(p.accept)
	return p
}

// inMemory counts the proxies in memory: each has an address of its own.
var inMemory atomic.Int64

// InMemory is New for a server that dial connects to. Only clients that [Proxy.Client] made, or whose Dialer
// is [Proxy.Dial], can reach it.
func InMemory(t testing.TB, dial func() (net.Conn, error)) *Proxy {
	addr := fmt.Sprintf("127.0.0.1:%d", inMemory.Add(1)) // never dialed, but looked at
	return start(t, addr, func(context.Context) (net.Conn, error) { return dial() })
}

func start(t testing.TB, addr string, dial func(context.Context) (net.Conn, error)) *Proxy {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		t: t, addr: addr, dial: dial, ctx: ctx,
		conns: map[*conn]struct{}{}, held: map[int]Request{}, undecided: map[int]bool{},
	}
	p.decided = sync.NewCond(&p.mu)
	t.Cleanup(func() {
		cancel()
		if p.listener != nil {
			_ = p.listener.Close()
		}
		p.Refuse(true)
		p.wg.Wait()
	})
	return p
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.addr }

// Dial connects to a proxy in memory. It fits redis.Options.Dialer.
func (p *Proxy) Dial(context.Context, string, string) (net.Conn, error) {
	p.mu.Lock()
	p.lastConn++
	id, refuse := p.lastConn, p.refuse
	p.mu.Unlock()
	if refuse {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	client, ours := net.Pipe()
	p.wg.Go(func() { p.serve(id, ours) })
	return client, nil
}

// InFakeTime makes the options of a client, *redis.Options or *redis.ClusterOptions, those of one that works
// in fake time. go-redis shares the timers of goroutines that wait for a connection among all clients, also
// across synctest bubbles, which ends the program. So no goroutine waits for one.
func InFakeTime(options any) {
	for _, size := range []string{"PoolSize", "PipelinePoolSize"} {
		// go-redis before 9.22 has one pool.
		if f := reflect.ValueOf(options).Elem().FieldByName(size); f.IsValid() {
			f.SetInt(10_000)
		}
	}
}

// Options returns the options of a client of the proxy: the defaults of go-redis, apart from a few that
// the proxy needs.
func (p *Proxy) Options() *redis.Options {
	opt := &redis.Options{Addr: p.Addr()}
	if p.listener == nil {
		opt.Dialer = p.Dial
		InFakeTime(opt)
		// go-redis asks for these under a mutex, and fake time stands still while a goroutine waits for one.
		opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	return opt
}

// Client returns a client of the proxy with its Options but for mod. It is closed when the test ends.
func (p *Proxy) Client(t testing.TB, mod ...func(*redis.Options)) *redis.Client {
	opt := p.Options()
	for _, m := range mod {
		m(opt)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Requests returns every request seen since the last Reset, in order of arrival.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Count returns how many requests since the last Reset have one of these commands; without names, how many
// there are.
func (p *Proxy) Count(names ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(names) == 0 {
		return len(p.requests)
	}
	n := 0
	for i := range p.requests {
		if p.requests[i].Is(names...) {
			n++
		}
	}
	return n
}

// Pushed returns the pub/sub messages delivered to clients since the last Reset.
func (p *Proxy) Pushed() []Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pushed)
}

// CountPushed returns the number of messages in Pushed.
func (p *Proxy) CountPushed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pushed)
}

// Conns returns the number of open client connections.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Reset forgets the recorded requests and messages. Faults, and held requests, stay.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.pushed = nil, nil
}

// StopRecording has the proxy record no requests and no messages from now on, so that it needs no more memory
// for each.
func (p *Proxy) StopRecording() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unrecorded = true
}

// OnRequest lets f decide on each request before it is forwarded; nil passes
// all. Calls for one connection come in its order, those for different
// connections may overlap. While f blocks, its connection's requests wait.
func (p *Proxy) OnRequest(f func(*Request) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onRequest = f
}

// OnReply has f called with each request that the server has answered, before the reply goes on; nil ends
// that. Calls for one connection come in its order, those for different connections may overlap.
func (p *Proxy) OnReply(f func(Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onReply = f
}

// SetDelay makes every request and every reply from now on arrive late by
// eachWay. They stay in order, and many can be under way.
func (p *Proxy) SetDelay(eachWay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = eachWay
}

// CutAll closes the current client connections, and loses what is under way on them.
func (p *Proxy) CutAll() {
	p.cutIf(func(*conn) bool { return true })
}

// Refuse(true) cuts all connections and closes new ones at once, until Refuse(false).
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	p.refuse = refuse
	p.mu.Unlock()
	if refuse {
		p.CutAll()
	}
}

// LeadTo has new connections lead to another server, as behind an endpoint that is moved. Those that are open
// stay.
func (p *Proxy) LeadTo(dial func() (net.Conn, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dial = func(context.Context) (net.Conn, error) { return dial() }
}

// CutRequests closes the client connections that have no subscription.
func (p *Proxy) CutRequests() {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock() // conn.mu comes before it
	for _, c := range open {
		if !c.listens() {
			c.cut()
		}
	}
}

// BlackHole loses, silently and on all connections, what is sent to the
// server, to clients, or both, from now on. Connections stay open. A
// connection that lost something in a direction is cut when that direction
// heals, because its stream has a gap; others go on.
func (p *Proxy) BlackHole(toServer, toClient bool) {
	p.mu.Lock()
	p.hole = [2]bool{toServer, toClient}
	p.mu.Unlock()
	p.cutIf(func(c *conn) bool {
		return c.lost[towardServer] && !toServer || c.lost[towardClient] && !toClient
	})
}

// Freeze has the server stand still as SIGSTOP does: connections stay open, new ones are accepted, and what
// is sent to it waits, also when its sender leaves, until Thaw.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Thaw lets a frozen server go on with what was sent meanwhile.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// thawed waits until the server is not frozen, or done is closed.
func (p *Proxy) thawed(done <-chan struct{}) {
	p.mu.Lock()
	frozen := p.frozen
	p.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-done:
		}
	}
}

// Held returns the requests that wait for Release, in order of arrival.
func (p *Proxy) Held() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make([]Request, 0, len(p.held))
	for _, r := range p.held {
		held = append(held, r)
	}
	slices.SortFunc(held, func(a, b Request) int { return a.Seq - b.Seq })
	return held
}

// Release delivers a request that was answered with Hold, as a late
// copy: on a connection of its own, and no client gets the reply. It returns
// when the server has replied, even with an error. OnRequest's f must not call it.
func (p *Proxy) Release(r Request) error {
	p.mu.Lock()
	for p.undecided[r.Seq] { // its OnRequest told the test about it and has not returned yet
		p.decided.Wait()
	}
	r, ok := p.held[r.Seq]
	delete(p.held, r.Seq)
	p.mu.Unlock()
	if !ok {
		return errors.New("faultproxy: Release of a request that is not held")
	}
	_, err := p.Replay(r)
	var reply ReplyError
	if errors.As(err, &reply) {
		return nil
	}
	return err
}

// ReplyError is an error that the server replied.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Replay delivers a copy of r to the server now, on a new connection
// (database 0, no AUTH, no faults), and waits for its reply. It returns text
// and numbers as they are, null as "(nil)", aggregates as "[a b]", errors as
// [ReplyError]. The copy is not recorded.
func (p *Proxy) Replay(r Request) (reply string, err error) {
	server, err := p.connect()
	if err != nil {
		return "", err
	}
	defer func() { _ = server.Close() }()
	if err := server.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := server.Write(encode(r.Args)); err != nil {
		return "", err
	}
	v, _, err := newDecoder(server).next()
	if err != nil {
		return "", err
	}
	if v.kind == '-' || v.kind == '!' {
		return "", ReplyError(v.str)
	}
	return v.String(), nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed: the test is over
		}
		p.mu.Lock()
		p.lastConn++
		id := p.lastConn
		p.mu.Unlock()
		p.wg.Go(func() { p.serve(id, client) })
	}
}

func (p *Proxy) serve(id int, client net.Conn) {
	server, err := p.connect()
	if err != nil {
		_ = client.Close()
		return
	}
	c := newConn(p, id, client, server)
	p.mu.Lock()
	refuse := p.refuse
	if !refuse {
		p.conns[c] = struct{}{}
	}
	p.mu.Unlock()
	if refuse {
		c.cut()
		return
	}
	c.run()
}

func (p *Proxy) connect() (net.Conn, error) {
	p.mu.Lock()
	dial := p.dial
	p.mu.Unlock()
	return dial(p.ctx)
}

func (p *Proxy) cutIf(doomed func(*conn) bool) {
	p.mu.Lock()
	var cut []*conn
	for c := range p.conns {
		if doomed(c) {
			cut = append(cut, c)
		}
	}
	p.mu.Unlock()
	for _, c := range cut {
		c.cut()
	}
}

// arrived records a request and asks what to do with it.
func (p *Proxy) arrived(conn int, args []string) (Request, Action) {
	p.mu.Lock()
	p.lastSeq++
	r := Request{Seq: p.lastSeq, Conn: conn, At: time.Now(), Args: args}
	if !p.unrecorded {
		p.requests = append(p.requests, r)
	}
	decide := p.onRequest
	if decide == nil {
		p.mu.Unlock()
		return r, Pass
	}
	p.undecided[r.Seq] = true
	p.mu.Unlock()

	seen := r // the test may keep it
	action := decide(&seen)

	p.mu.Lock()
	defer p.mu.Unlock()
	if action == Hold {
		p.held[r.Seq] = r
	}
	delete(p.undecided, r.Seq)
	p.decided.Broadcast()
	return r, action
}

func (p *Proxy) replied(r Request) {
	p.mu.Lock()
	tell := p.onReply
	p.mu.Unlock()
	if tell != nil {
		tell(r)
	}
}

func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delay)
}
