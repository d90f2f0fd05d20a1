// Package faultproxy is a proxy between clients and one Redis server, for tests. It works over TCP or in
// memory. It records the requests of clients and the messages to them. (commandstats would also count the
// commands that scripts call.) It can break connections at chosen requests.
//
// In memory, it needs no socket and runs in fake time.
//
// It understands pub/sub, and commands that get one reply each. It does not understand MONITOR, CLIENT REPLY
// OFF, replication, inline commands or TLS.
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

// A Proxy forwards connections to one server. Its methods may be called at any time, from any goroutine.
type Proxy struct {
	t        testing.TB
	addr     string
	listener net.Listener    // nil if the proxy is in memory
	ctx      context.Context // ends with the proxy
	wg       sync.WaitGroup  // counts the goroutines of the proxy and of its connections

	// mu guards the fields below, and the field lost of each conn. If both are needed, conn.mu is locked
	// first.
	mu        sync.Mutex
	dial      func(context.Context) (net.Conn, error) // connects to the server
	conns     map[*conn]struct{}
	onRequest func(*Request) Action
	onReply   func(Request)
	requests  []Request
	pushed    []Message
	held      map[int]Request // requests with the action Hold, by Seq
	undecided map[int]bool    // Seq of requests for which a call of onRequest has not returned
	decided   *sync.Cond      // is signaled when a request is removed from undecided
	lastSeq   int
	delay     time.Duration
	refuse    bool
	hole      [2]bool       // the directions of BlackHole
	frozen    chan struct{} // closed by Thaw; nil: the server is not frozen
	lastConn  int

	unrecorded bool // requests and messages are not recorded any more
}

// New starts a proxy for the server at the address upstream. The proxy and its connections end with the test.
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

// inMemory is the number of proxies in memory so far. Each has an address of its own.
var inMemory atomic.Int64

// InMemory starts a proxy in memory for the server to which dial connects. It is reached only by clients that
// [Proxy.Client] has made, or whose Dialer is [Proxy.Dial]. The proxy ends with the test.
func InMemory(t testing.TB, dial func() (net.Conn, error)) *Proxy {
	addr := fmt.Sprintf("127.0.0.1:%d", inMemory.Add(1)) // only looked at, and never dialed
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

// Addr returns the address to which clients connect.
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

// InFakeTime changes options of a client, a *redis.Options or *redis.ClusterOptions, so that it works in fake
// time. It makes pools so large that no goroutine waits for a connection. For such waits, all clients of
// go-redis share timers, even across synctest bubbles, which ends the program.
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
		// go-redis requests these notifications while it holds a mutex, and fake time stops while a goroutine
		// waits for a mutex.
		opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	return opt
}

// Client returns a client of the proxy. Its options are Options, changed by mod. The client is closed when
// the test ends.
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

// Count returns the number of requests since the last Reset that have one of these commands. Without names,
// it returns the number of all requests.
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

// Reset forgets the recorded requests and messages. It does not change faults and held requests.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.pushed = nil, nil
}

// StopRecording ends the recording of requests and messages, so that they need no more memory.
func (p *Proxy) StopRecording() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unrecorded = true
}

// OnRequest lets f decide about each request before it is forwarded. If f is nil, all requests are forwarded.
// For one connection, the calls come in the order of its requests, and its requests wait while f blocks.
// Calls for different connections may overlap.
func (p *Proxy) OnRequest(f func(*Request) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onRequest = f
}

// OnReply lets the proxy call f with each request that the server has answered, before it forwards the reply.
// If f is nil, nothing is called. For one connection, the calls come in the order of its requests. Calls for
// different connections may overlap.
func (p *Proxy) OnReply(f func(Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onReply = f
}

// SetDelay delays each request and each reply from now on by eachWay. They stay in order, and many can be in
// flight.
func (p *Proxy) SetDelay(eachWay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = eachWay
}

// CutAll closes the present client connections. Requests and replies in flight are lost.
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

// LeadTo lets new connections lead to another server, as an endpoint that has moved. Open connections do not
// change.
func (p *Proxy) LeadTo(dial func() (net.Conn, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dial = func(context.Context) (net.Conn, error) { return dial() }
}

// CutRequests closes the client connections that have no subscription.
func (p *Proxy) CutRequests() {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock() // conn.mu must not be locked while p.mu is
	for _, c := range open {
		if !c.listens() {
			c.cut()
		}
	}
}

// BlackHole loses all data to the server, to the clients, or both, from now on, on all connections.
// Connections stay open. BlackHole(false, false) ends that. If a connection has lost data in a direction, it
// is cut when that direction works again, because its stream has a gap.
func (p *Proxy) BlackHole(toServer, toClient bool) {
	p.mu.Lock()
	p.hole = [2]bool{toServer, toClient}
	p.mu.Unlock()
	p.cutIf(func(c *conn) bool {
		return c.lost[towardServer] && !toServer || c.lost[towardClient] && !toClient
	})
}

// Freeze stops the server, as SIGSTOP does. Connections stay open, and new ones are accepted. Data to the
// server wait until Thaw, even if their client has closed its connection.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Thaw ends a Freeze. The server then receives the data that were sent during it.
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

// Release delivers a request whose action was Hold, as a stale copy. The copy has a connection of its own,
// and no client gets the reply. Release returns when the server has replied, even if it has replied with an
// error. The function of OnRequest must not call it.
func (p *Proxy) Release(r Request) error {
	p.mu.Lock()
	for p.undecided[r.Seq] { // the test may have r from a call of onRequest that has not returned yet
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

// A ReplyError is an error with which the server replied.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Replay delivers a copy of r to the server now, and waits for the reply. The copy has a new connection, with
// database 0, without AUTH and without faults. It is not recorded. Replay returns text and numbers as they
// are, a null as "(nil)" and an aggregate as "[a b]". It returns an error of the server as a [ReplyError].
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
			return // the test has ended
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

// arrived records a request, and returns the action that onRequest chooses.
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
