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

// A conn is one client connection and the connection to the server behind it. For each direction, one
// goroutine reads and puts packets into a queue, and another one delivers them when they are due.
type conn struct {
	p     *Proxy
	id    int
	ends  [2]net.Conn    // the connections, by the direction of the data that are written to them
	queue [2]chan packet // packets to be written, by direction
	done  chan struct{}  // closed by the first cut
	once  sync.Once

	lost [2]bool // data of this direction were lost (BlackHole); guarded by p.mu

	mu         sync.Mutex // guards the fields below
	waiting    []*awaited // requests that the server has not answered yet, oldest first
	subscribed bool       // the client has sent a subscription
}

// A packet is one request or reply in flight.
type packet struct {
	data    []byte
	due     time.Time
	message *Message // the message in it; nil if it is none
	last    bool     // the connection is cut instead of writing data
}

// An awaited is a request that has no complete reply yet.
type awaited struct {
	Request
	action Action
	frames int // number of missing replies; a subscription gets one for each channel
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

// readClient forwards requests until an action ends that, or until the client closes its connection. The
// server still gets the requests before that.
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
			// Data are read only to notice that the client has closed its connection.
			_, _ = io.Copy(io.Discard, c.ends[towardClient])
			break
		}
	}
	c.send(towardServer, packet{last: true})
}

// request carries out an action, and reports whether the next request of the connection may follow.
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

// cutIfDue cuts the connection if the oldest request without a reply is one to be dropped. The cut comes
// after the replies in the queue. The caller must hold c.mu.
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

// answered returns the request to which v is a reply, or a part of it. It returns nil if v belongs to no
// request, such as a message. The request stays in c.waiting until settle, which comes after the reply is in
// the queue. Otherwise a cut for the next request could overtake the reply.
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
			// An UNSUBSCRIBE without channels gets many confirmations, and there are some when a slot moves.
			if head == nil || !head.Is(name) {
				return nil
			}
		case v.kind == '>': // invalidations, maintenance notices
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

// settle removes the oldest request from c.waiting if it has its complete reply.
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

// deliver writes the packets of one direction when they are due. It ignores errors, because the goroutine
// that reads from the same connection notices its end.
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

// passes reports whether pk is delivered, and not lost because of BlackHole. It records messages that are
// delivered.
func (c *conn) passes(direction int, pk packet) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.p.hole[direction] || c.lost[direction] { // after a gap, all is lost
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
