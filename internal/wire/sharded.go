package wire

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// probeTime bounds the question whether a server has sharded pub/sub.
const probeTime = time.Second

// probe is that question to one server.
type probe struct {
	done     chan struct{} // closed once it is answered or given up
	possible bool
}

// Sharded reports whether the server of a key has sharded pub/sub (Redis 7 or newer, Valkey), and lets the client's user
// subscribe and publish on a channel like this one. It blocks for a second at most, and asks each server once. As long as it does
// not answer, the report is false, and the next call asks again. On channel nobody else may listen.
func (l *Link) Sharded(ctx context.Context, key, channel string) bool {
	node, one := l.Server(key).(*redis.Client)
	if !one || l.Single() {
		return false
	}
	l.probing.Lock()
	p := l.probes[node]
	asked := p != nil
	if !asked {
		p = &probe{done: make(chan struct{})}
		l.probes[node] = p
	}
	l.probing.Unlock()
	if asked {
		select {
		case <-p.done:
			return p.possible
		case <-ctx.Done():
			return false
		}
	}

	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	possible, known := l.probe(ctx, node, channel)
	p.possible = possible
	if !known {
		l.probing.Lock()
		delete(l.probes, node)
		l.probing.Unlock()
	}
	close(p.done)
	return possible
}

// probe has a connection of its own, because it may be a subscribed one then.
func (l *Link) probe(ctx context.Context, node *redis.Client, channel string) (possible, known bool) {
	var err error
	func() {
		defer l.survive(&err)
		sub := node.SSubscribe(ctx)
		defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // ends the wait for the reply
		defer func() { _ = sub.Close() }()
		if err = sub.SSubscribe(ctx, channel); err == nil {
			_, err = sub.Receive(ctx)
		}
		if permitted(err) {
			err = node.SPublish(ctx, channel, "").Err()
		}
	}()
	if permitted(err) {
		return true, true
	}
	return false, refused(err)
}

// permitted: the server has the command, and the user the right to it. It looks at both before it looks for the slot.
func permitted(err error) bool { return err == nil || moved(err) }

func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) &&
		(strings.HasPrefix(reply.Error(), "NOPERM") || strings.HasPrefix(reply.Error(), "ERR unknown command"))
}
