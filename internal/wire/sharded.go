package wire

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// probeTime is how long the dialing, and the reply to SSUBSCRIBE, may take.
const probeTime = time.Second

// probe is the question to one server whether it has sharded pub/sub.
type probe struct {
	done            chan struct{} // closed once it is answered or given up
	possible, known bool
}

// Sharded reports what Probe has found out about the server of a key. It does not block.
func (l *Link) Sharded(key string) (possible, known bool) {
	node, several := l.node(key)
	if !several {
		return false, true
	}
	l.probing.Lock()
	p := l.probes[node]
	l.probing.Unlock()
	if p == nil {
		return false, false
	}
	select {
	case <-p.done:
		return p.possible, p.known
	default:
		return false, false
	}
}

// Probe asks the server of a key whether it has sharded pub/sub (Redis 7 or newer, Valkey), and lets the
// client's user subscribe and publish on a channel like this one. No other client may listen on this channel.
// Probe blocks until that is answered, as long as the client's time-outs allow. Each server is asked once;
// one that does not answer is asked again the next time.
func (l *Link) Probe(key, channel string) (possible, known bool) {
	node, several := l.node(key)
	if !several {
		return false, true
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
		<-p.done
		return p.possible, p.known
	}

	if p.possible, p.known = l.probe(node, channel); !p.known {
		l.probing.Lock()
		delete(l.probes, node)
		l.probing.Unlock()
	}
	close(p.done)
	return p.possible, p.known
}

// node is the server of a key, if there are several.
func (l *Link) node(key string) (node *redis.Client, several bool) {
	if l.Single() {
		return nil, false
	}
	node, several = l.Server(key).(*redis.Client)
	return node, several
}

// probe has a connection of its own, because it may be a subscribed one then.
func (l *Link) probe(node *redis.Client, channel string) (possible, known bool) {
	ctx, cancel := context.WithTimeout(l.options.Context, probeTime)
	defer cancel()
	var err error
	func() {
		defer l.survive(&err)
		sub := node.SSubscribe(ctx)
		defer func() { _ = sub.Close() }()
		if err = sub.SSubscribe(ctx, channel); err == nil {
			_, err = sub.ReceiveTimeout(ctx, probeTime)
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

// permitted: the server has the command, and the user the right to it. It looks at both before it looks for
// the slot.
func permitted(err error) bool { return err == nil || moved(err) }

func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) &&
		(strings.HasPrefix(reply.Error(), "NOPERM") || strings.HasPrefix(reply.Error(), "ERR unknown command"))
}
