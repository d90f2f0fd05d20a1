package session

import (
	"context"
	"sync"
)

// Sharded reports whether the session listens at ShardedHub for what is published about a key, rather than at
// Hub. If it is not known, it asks the key's server, once, and blocks until that has answered or ctx or the
// session ends. known is false where there was no answer: a waiter that listens at Hub loses nothing but the
// saving.
//
// Another session may have another answer: its user has other rights, it was told another mode, or the server
// was replaced in between. So a publisher must not go by its own answer. A waiter that is to be told by
// SPUBLISH has to say so in Redis, where the script that wakes it finds it.
func (s *Session) Sharded(ctx context.Context, key string) (possible, known bool) {
	if possible, known = s.KnownSharded(key); known || !s.Begin() {
		return possible, known
	}
	type finding struct{ possible, known bool }
	answer := make(chan finding, 1)
	go func() {
		defer s.End()
		var f finding
		f.possible, f.known = s.Link.Probe(key, s.Channel())
		answer <- f
	}()
	select {
	case f := <-answer:
		return f.possible, f.known
	case <-ctx.Done():
	case <-s.closing:
	}
	return false, false
}

// KnownSharded is Sharded without asking. It does not block.
func (s *Session) KnownSharded(key string) (possible, known bool) {
	switch {
	case s.ShardedHub == nil:
		return false, true
	case s.PubSub == PubSubSharded:
		return true, true
	}
	return s.Link.Sharded(key)
}

// closeHubs closes both at once, since each may wait for a dial.
func (s *Session) closeHubs() {
	var hubs sync.WaitGroup
	hubs.Go(s.Hub.Close)
	if s.ShardedHub != nil {
		hubs.Go(s.ShardedHub.Close)
	}
	hubs.Wait()
}
