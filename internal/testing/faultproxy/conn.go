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

// conn is one client connection and the server's connection behind it. Two
// goroutines read, decide, and queue; two deliver what is queued when it is due.
type conn struct {
	p     *Proxy
	id    int
	ends  [2]net.Conn    // by the direction of what is written to it
	queue [2]chan packet // likewise
	done  chan struct{}  // closed by the first cut
	once  sync.Once

	lost [2]bool // guarded by p.mu: something fell into the black hole

	mu         sync.Mutex // guards the rest
	waiting    []*awaited // what the server has not answered yet, oldest first
	subscribed bool
}

// packet is one request or reply under way.
type packet struct {
	data    []byte
	due     time.Time
	message *Message // if it is one
	last    bool     // no data: cut the connection here
}

// awaited is a request whose reply is still to come.
type awaited struct {
	Request
	action Action
	frames int // how many make the reply: one confirmation for each channel
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

// readClient forwards requests until one must not be, or the client leaves.
// What a leaving client had sent still reaches the server.
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
			// Read on only to notice that the client leaves.
			_, _ = io.Copy(io.Discard, c.ends[towardClient])
			break
		}
	}
	c.send(towardServer, packet{last: true})
}

// request does what was decided and reports whether the connection's next request may follow.
func (c *conn) request(r Request, action Action, raw []byte) bool {
	switch action {
	case Swallow, Hold:
		return false
	case DropAndCut:
		c.await(awaited{Request: r, action: action})
		return false
	}
	// The server may answer as soon as it has the request: first note that a reply is awaited.
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

// cutIfDue cuts, once the replies queued so far are delivered, if all
// requests before a dropped one have been answered. c.mu is held.
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

// answered finds the request that v is (a part of) the reply to; nil if v
// came unasked. The request keeps its place until settle, after the reply is
// queued: a cut that waits behind it must not overtake the reply.
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
			// More than were asked for come from an UNSUBSCRIBE without channels, or when a slot moves.
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

// settle takes the oldest request off if it has its whole reply.
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

// listens reports whether it has a subscription.
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

// deliver writes what is queued in one direction when it is due. If a write
// fails, the goroutine that reads from that end sees the end of it.
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

// passes loses pk in the black hole, if there is one, or counts it as delivered.
func (c *conn) passes(direction int, pk packet) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.p.hole[direction] || c.lost[direction] { // nothing may follow a gap
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
