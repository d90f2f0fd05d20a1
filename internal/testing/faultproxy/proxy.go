// Package faultproxy has a proxy between clients and one Redis server, for tests. The proxy records the
// requests of clients, and the pub/sub messages to clients. (The commandstats of Redis would also count the
// commands that scripts call.) For each request, a test can choose that the proxy loses the request, loses
// its reply or breaks the connection.
//
// The proxy works over TCP or in memory. A proxy in memory needs no socket, and can run in fake time.
//
// The proxy understands pub/sub, and commands that get one reply each. It does not understand MONITOR, CLIENT
// REPLY OFF, replication, inline commands or TLS.
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

	// mu guards the fields below, and the field lost of each conn. A goroutine that needs conn.mu and mu must
	// lock conn.mu first.
	mu        sync.Mutex
	dial      func(context.Context) (net.Conn, error) // connects to the server
	conns     map[*conn]struct{}
	onRequest func(*Request) Action
	onReply   func(Request)
	requests  []Request
	pushed    []Message
	held      map[int]Request // requests with the action Hold, by Seq
	undecided map[int]bool    // Seq of requests for which the call of onRequest has not returned yet
	decided   *sync.Cond      // signaled when a request is removed from undecided
	lastSeq   int
	delay     time.Duration
	refuse    bool
	hole      [2]bool       // for each direction: data are lost because of BlackHole
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

// inMemory counts the proxies in memory, because each of them gets an address of its own.
var inMemory atomic.Int64

// InMemory starts a proxy in memory for the server to which dial connects. A client reaches the proxy only if
// its Dialer is [Proxy.Dial], as in [Proxy.Options] and [Proxy.Client]. The proxy ends with the test.
func InMemory(t testing.TB, dial func() (net.Conn, error)) *Proxy {
	addr := fmt.Sprintf("127.0.0.1:%d", inMemory.Add(1)) // a distinct name, which nobody dials
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

// Dial connects to a proxy in memory. It can be the Dialer of redis.Options.
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

// InFakeTime changes the options of a client, so that the client works in fake time. options must be a
// *redis.Options or a *redis.ClusterOptions. InFakeTime makes the pools so large that no goroutine waits for
// a connection. For such a wait, go-redis could use a timer of another synctest bubble, which ends the
// program.
func InFakeTime(options any) {
	for _, size := range []string{"PoolSize", "PipelinePoolSize"} {
		// go-redis before 9.22 has one pool.
		if f := reflect.ValueOf(options).Elem().FieldByName(size); f.IsValid() {
			f.SetInt(10_000)
		}
	}
}

// Options returns the options of a client of the proxy. They are the defaults of go-redis, apart from a few
// options that the proxy needs.
func (p *Proxy) Options() *redis.Options {
	opt := &redis.Options{Addr: p.Addr()}
	if p.listener == nil {
		opt.Dialer = p.Dial
		InFakeTime(opt)
		// go-redis requests these notifications while it holds a mutex. Fake time stops while another
		// goroutine waits for this mutex.
		opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	return opt
}

// Client returns a client of the proxy. The client has the options that Options returns, changed by mod. It
// is closed when the test ends.
func (p *Proxy) Client(t testing.TB, mod ...func(*redis.Options)) *redis.Client {
	opt := p.Options()
	for _, m := range mod {
		m(opt)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Requests returns the requests that arrived since the last Reset, in order of arrival.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Count returns the number of requests since the last Reset whose command is one of names. Without names, it
// returns the number of all requests since then.
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

// Pushed returns the pub/sub messages that the proxy has delivered to clients since the last Reset.
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

// StopRecording ends the recording of requests and messages, so that the proxy does not use more and more
// memory.
func (p *Proxy) StopRecording() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unrecorded = true
}

// OnRequest lets f choose the action for each request that arrives from now on. If f is nil, the proxy
// forwards all requests. For one connection, the calls of f come in the order of the requests, and later
// requests wait while f blocks. Calls for different connections may overlap.
func (p *Proxy) OnRequest(f func(*Request) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onRequest = f
}

// OnReply lets the proxy call f with each request that the server has answered, before the proxy forwards the
// reply. If f is nil, the proxy calls no function. For one connection, the calls of f come in the order of
// the requests. Calls for different connections may overlap.
func (p *Proxy) OnReply(f func(Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onReply = f
}

// SetDelay delays each request and each reply from now on by eachWay. Requests and replies stay in order, and
// a delayed request does not hold up the next one.
func (p *Proxy) SetDelay(eachWay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = eachWay
}

// CutAll closes all client connections that are open now. Requests and replies that the proxy has not yet
// delivered are lost.
func (p *Proxy) CutAll() {
	p.cutIf(func(*conn) bool { return true })
}

// Refuse(true) cuts all connections. Until Refuse(false), the proxy refuses new connections, or closes them
// at once.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	p.refuse = refuse
	p.mu.Unlock()
	if refuse {
		p.CutAll()
	}
}

// LeadTo lets new connections lead to the server that dial connects to, as when an endpoint has moved. Open
// connections do not change.
func (p *Proxy) LeadTo(dial func() (net.Conn, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dial = func(context.Context) (net.Conn, error) { return dial() }
}

// CutRequests closes the client connections that have never had a subscription.
func (p *Proxy) CutRequests() {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock() // the loop locks conn.mu, which must not be locked while p.mu is locked
	for _, c := range open {
		if !c.listens() {
			c.cut()
		}
	}
}

// BlackHole makes all connections, also new ones, lose their data from now on. toServer and toClient select
// the directions in which data are lost. Connections stay open. BlackHole(false, false) lets both directions
// work again. A connection that has lost data in one direction is cut when this direction works again,
// because its stream has a gap.
func (p *Proxy) BlackHole(toServer, toClient bool) {
	p.mu.Lock()
	p.hole = [2]bool{toServer, toClient}
	p.mu.Unlock()
	p.cutIf(func(c *conn) bool {
		return c.lost[towardServer] && !toServer || c.lost[towardClient] && !toClient
	})
}

// Freeze makes the server appear to be stopped, as by SIGSTOP. Connections stay open, and clients can
// connect. Requests wait until Thaw, even if their client has closed its connection.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Thaw ends a Freeze. The server then receives the requests that clients have sent during the Freeze.
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

// Held returns the requests with the action Hold that were not released yet, in order of arrival.
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
// and no client gets the reply. Release returns nil when the server has replied, even if the reply is an
// error. It returns an error if the request is not held, or if there is no reply. The function of OnRequest
// must not call Release.
func (p *Proxy) Release(r Request) error {
	p.mu.Lock()
	for p.undecided[r.Seq] { // the call of onRequest that got r may not have returned yet
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

// Replay delivers a copy of r to the server now, and waits for the reply. The copy has a new connection to
// database 0, without AUTH. No fault of the proxy affects the copy, and the copy is not recorded. Replay
// returns text and numbers as they are, a null as "(nil)" and an aggregate as "[a b]". If the reply is an
// error, Replay returns it as a [ReplyError].
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

	seen := r // a copy, because the test may keep the pointer
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
