package session

import (
	"context"
	"sync"
)

// Sharded reports whether the session listens at ShardedHub for what is published about a key, rather than at Hub. It
// may ask the key's server first, once, and then blocks for a second at most. An outage makes it false for this once: a waiter
// that listens at Hub loses nothing but the saving.
//
// Another session may have another answer: its user has other rights, it was told another mode, or the server was
// replaced in between. So this is no answer to the question how to publish. The waiter decides, for each wait, and has to
// write in Redis how it wants to be told, and the script that wakes it heeds that.
func (s *Session) Sharded(ctx context.Context, key string) bool {
	if s.ShardedHub == nil {
		return false
	}
	return s.PubSub == PubSubSharded || s.Link.Sharded(ctx, key, s.Args.Channels.(string)+s.id)
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
