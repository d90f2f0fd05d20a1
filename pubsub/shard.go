package pubsub

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// shard is the channels that one connection serves: all of a hub's or, of a Cluster, those that one node has.
type shard struct {
	hub   *Hub
	node  Node
	poked chan struct{} // cap 1: the owner has to look again

	// Guarded by hub.mu.
	size  int        // how many channels it has
	fresh []string   // of these, the ones that the connection has no SUBSCRIBE for yet
	left  []string   // those that another shard has now, and that the connection has no UNSUBSCRIBE for yet
	idle  *list.List // of its channels, the ones that linger, the longest idle first
	owned bool       // there is an owner

	misled bool // the connection leads to a server on which nothing is published
}

// dialer is the node of a hub that has one.
type dialer func(context.Context) Conn

func (d dialer) Dial(ctx context.Context) Conn { return d(ctx) }

func newShard(h *Hub, n Node) *shard {
	return &shard{hub: h, node: n, poked: make(chan struct{}, 1), idle: list.New()}
}

// sharded reports whether it is one of several, whose channels can come and go by themselves.
func (s *shard) sharded() bool { return s.hub.cluster != nil }

// add gives it a channel. The caller holds hub.mu.
func (s *shard) add(ch *channel) {
	ch.shard = s
	s.size++
	s.fresh = append(s.fresh, ch.name)
	poke(s.poked)
	if !s.owned {
		s.owned = true
		s.hub.start(s.own)
	}
}

// remove takes a channel from it. The caller holds hub.mu.
func (s *shard) remove(ch *channel) {
	ch.shard, ch.confirmed = nil, false
	s.size--
	if ch.idle != nil {
		s.idle.Remove(ch.idle)
		ch.idle = nil
	}
}

// has reports whether the named channel is one of its own. The caller holds hub.mu.
func (s *shard) has(name string) bool {
	ch := s.hub.channels[name]
	return ch != nil && ch.shard == s
}

// own is the owner: it serves one connection after another while one is needed.
func (s *shard) own() {
	h := s.hub
	var (
		pause  time.Duration
		outage time.Time // when the present outage began; zero if there is none
		misled bool      // it was logged that a connection led elsewhere
	)
	for s.needed() {
		l := &link{hub: h, shard: s, outage: outage, awaited: make(map[string]int)}
		err := l.serve()
		if err == nil || h.ctx.Err() != nil {
			continue
		}
		if l.answered {
			pause, outage = 0, time.Time{}
		}
		// It may be so again and again, of a client whose connections lead to two servers.
		if errors.Is(err, errMisled) {
			if !misled {
				misled = true
				h.log(slog.LevelWarn, "pubsub: connection replaced", s.describe("error", err)...)
			}
		} else if outage.IsZero() {
			outage = time.Now()
			what := "pubsub: connection lost, reconnecting"
			if errors.As(err, new(redis.Error)) { // as for a user without the right to subscribe
				what = "pubsub: may not subscribe, trying again; until then, waiters ask by heartbeats"
			}
			h.log(slog.LevelWarn, what, s.describe("error", err)...)
		}
		if s.sharded() {
			h.reload()
		}
		var wait time.Duration
		pause, wait = longer(pause)
		select {
		case <-time.After(wait):
		case <-h.ctx.Done():
		}
		if s.sharded() {
			s.review()
		}
	}
	if !outage.IsZero() && h.ctx.Err() == nil {
		h.log(slog.LevelInfo, "pubsub: connection no longer needed",
			s.describe("after", time.Since(outage))...)
	}
}

// describe adds to the attributes of a log line which server it is about, if there are several.
func (s *shard) describe(args ...any) []any {
	if s.sharded() {
		args = append(args, "server", s.node)
	}
	return args
}

// needed tells whether a connection is called for, and prepares for one, on which nothing is
// subscribed yet. If it isn't, the owner ends, and the next channel starts another one.
func (s *shard) needed() bool {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.expire(time.Now())
	if s.size == 0 || h.ctx.Err() != nil {
		s.owned = false
		if s.sharded() {
			delete(h.shards, s.node)
		}
		return false
	}
	s.fresh, s.left, s.misled = nil, nil, false
	for name, ch := range h.channels {
		if ch.shard == s {
			s.fresh = append(s.fresh, name)
		}
	}
	slices.Sort(s.fresh)
	return true
}

// expire forgets the channels whose linger is over, and names them. The caller holds hub.mu.
func (s *shard) expire(now time.Time) (expired []string) {
	for e := s.idle.Front(); e != nil; e = s.idle.Front() {
		ch := e.Value.(*channel)
		if now.Before(ch.idleSince.Add(s.hub.options.Linger)) {
			break
		}
		s.remove(ch)
		delete(s.hub.channels, ch.name)
		expired = append(expired, ch.name)
	}
	return expired
}
