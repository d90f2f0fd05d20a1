package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// The directions of a connection.
const (
	towardServer = iota
	towardClient
)

// A conn is one client connection with its own connection to the server. For each direction, one goroutine
// reads packets and puts them into a queue, and another goroutine delivers each packet when it is due.
type conn struct {
	p     *Proxy
	id    int
	ends  [2]net.Conn    // ends[towardServer] leads to the server, and ends[towardClient] to the client
	queue [2]chan packet // packets that wait to be delivered, by direction
	done  chan struct{}  // closed by the first cut
	once  sync.Once

	lost [2]bool // for each direction: BlackHole has lost data; guarded by p.mu

	mu         sync.Mutex // guards the fields below
	waiting    []*awaited // requests without a complete reply, oldest first
	subscribed bool       // the client has sent a SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE
}

// A packet is one request, reply or message that the proxy has not delivered yet.
type packet struct {
	data    []byte
	due     time.Time
	message *Message // the pub/sub message in data; nil: data is no message
	last    bool     // there is no data, and the connection is cut when the packet is due
}

// An awaited is a request that has no complete reply yet.
type awaited struct {
	Request
	action Action
	frames int // number of missing replies; a SUBSCRIBE gets one reply for each channel
}

func newConn(p *Proxy, id int, client, server net.Conn) *conn {
	return &conn{
		p: p, id: id,
		ends:  [2]net.Conn{towardServer: server, towardClient: client},
		queue: [2]chan packet{make(chan packet, 1024), make(chan packet, 1024)},
		done:  make(chan struct{}),
	}
}

func (c *conn) run() {
	var wg sync.WaitGroup
	wg.Go(c.readClient)
	wg.Go(c.readServer)
	wg.Go(func() { c.deliver(towardServer) })
	wg.Go(func() { c.deliver(towardClient) })
	wg.Wait()
}

func (c *conn) cut() {
	c.once.Do(func() {
		c.p.mu.Lock()
		delete(c.p.conns, c)
		c.p.mu.Unlock()
		close(c.done)
		_ = c.ends[towardServer].Close()
		_ = c.ends[towardClient].Close()
	})
}

// readClient forwards requests until an action ends the forwarding, or until the client closes its
// connection. The server still gets the requests that came before.
func (c *conn) readClient() {
	client := newDecoder(c.ends[towardClient])
	for {
		v, raw, err := client.next()
		if err != nil {
			if errors.As(err, new(protocolError)) {
				c.p.t.Errorf("faultproxy: request of connection %d: %v", c.id, err)
			}
			break
		}
		r, action := c.p.arrived(c.id, v.args())
		if !c.request(r, action, raw) {
			// Continue to read, only to notice when the client closes its connection.
			_, _ = io.Copy(io.Discard, c.ends[towardClient])
			break
		}
	}
	c.send(towardServer, packet{last: true})
}

// request carries out an action, and reports whether the proxy may read the next request of the connection.
func (c *conn) request(r Request, action Action, raw []byte) bool {
	switch action {
	case Swallow, Hold:
		return false
	case DropAndCut:
		c.await(awaited{Request: r, action: action})
		return false
	}
	// The server may answer as soon as it has the request, so await must come before send.
	c.await(awaited{Request: r, action: action, frames: replyFrames(r)})
	c.send(towardServer, packet{data: raw})
	return action != CutReply
}

func (c *conn) await(a awaited) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, &a)
	c.subscribed = c.subscribed || a.Is("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")
	c.cutIfDue()
}

// cutIfDue cuts the connection if the oldest request in c.waiting has the action DropAndCut. The cut comes
// after the replies that are in the queue. The caller must hold c.mu.
func (c *conn) cutIfDue() {
	if len(c.waiting) > 0 && c.waiting[0].action == DropAndCut {
		c.send(towardClient, packet{last: true})
	}
}

func (c *conn) readServer() {
	server := newDecoder(c.ends[towardServer])
	for mute := false; ; {
		v, raw, err := server.next()
		if err != nil {
			break
		}
		a := c.answered(v)
		switch {
		case a == nil:
		case a.action == CutReply:
			if a.frames == 0 {
				c.send(towardClient, packet{last: true})
			}
			mute = true
		case a.action == SwallowReply:
			mute = true
		}
		if a != nil && a.frames == 0 {
			c.p.replied(a.Request)
		}
		if !mute {
			c.send(towardClient, packet{data: raw, message: c.message(v)})
		}
		c.settle()
	}
	c.send(towardClient, packet{last: true})
}

// answered returns the request to which v is the reply, or one of several replies. It returns nil if v is not
// a reply, for example if v is a message. The request stays in c.waiting until its reply is in the queue and
// settle runs. Otherwise a cut for the next request could overtake the reply.
func (c *conn) answered(v value) *awaited {
	c.mu.Lock()
	defer c.mu.Unlock()
	var head *awaited
	if len(c.waiting) > 0 {
		head = c.waiting[0]
	}
	if v.kind == '>' || v.kind == '*' && c.subscribed {
		switch name := v.name(); {
		case isMessage(name):
			return nil
		case isConfirmation(name):
			// An UNSUBSCRIBE without channels gets a confirmation for each channel. When a slot moves, the
			// server also sends confirmations without a request.
			if head == nil || !head.Is(name) {
				return nil
			}
		case v.kind == '>': // an invalidation of a cached key, or a notice of maintenance
			return nil
		}
	}
	if head == nil {
		return nil
	}
	if head.frames--; head.frames <= 0 || v.kind == '-' || v.kind == '!' {
		head.frames = 0
	}
	return head
}

// settle removes the oldest request from c.waiting if this request has its complete reply.
func (c *conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 && c.waiting[0].action != DropAndCut && c.waiting[0].frames == 0 {
		c.waiting = c.waiting[1:]
	}
	c.cutIfDue()
}

func (c *conn) message(v value) *Message {
	subscribed := c.listens()
	name, n := v.name(), len(v.elems)
	if !isMessage(name) || n < 3 || v.kind == '*' && !subscribed {
		return nil
	}
	return &Message{Conn: c.id, Kind: name, Channel: v.elems[n-2].str, Payload: v.elems[n-1].String()}
}

// listens reports whether the client has sent a subscription.
func (c *conn) listens() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subscribed
}

func (c *conn) send(direction int, pk packet) {
	pk.due = c.p.due()
	select {
	case c.queue[direction] <- pk:
	case <-c.done:
	}
}

// deliver writes the packets of one direction when they are due. It ignores errors of writes, because the
// goroutine that reads from the same connection also notices when the connection ends.
func (c *conn) deliver(direction int) {
	w := bufio.NewWriterSize(c.ends[direction], 16<<10)
	for {
		if len(c.queue[direction]) == 0 {
			_ = w.Flush()
		}
		var pk packet
		select {
		case pk = <-c.queue[direction]:
		case <-c.done:
			return
		}
		if wait := time.Until(pk.due); wait > 0 {
			_ = w.Flush()
			select {
			case <-time.After(wait):
			case <-c.done:
				return
			}
		}
		if direction == towardServer {
			c.p.thawed(c.done)
		}
		if pk.last {
			_ = w.Flush()
			c.cut()
			return
		}
		if c.passes(direction, pk) {
			_, _ = w.Write(pk.data)
		}
	}
}

// passes reports whether the proxy delivers pk. It returns false if BlackHole loses pk. It also records the
// message of a packet that the proxy delivers.
func (c *conn) passes(direction int, pk packet) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.p.hole[direction] || c.lost[direction] { // after a gap, all later data of the connection are lost
		c.lost[direction] = true
		return false
	}
	if pk.message != nil && !c.p.unrecorded {
		pk.message.At = time.Now()
		c.p.pushed = append(c.p.pushed, *pk.message)
	}
	return true
}

func replyFrames(r Request) int {
	if len(r.Args) > 0 && isConfirmation(strings.ToLower(r.Args[0])) {
		return max(1, len(r.Args)-1)
	}
	return 1
}

func isMessage(name string) bool {
	return name == "message" || name == "pmessage" || name == "smessage"
}

func isConfirmation(name string) bool {
	switch name {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return true
	}
	return false
}
