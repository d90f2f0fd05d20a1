package pubsub_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/pubsub"
)

// alone makes a single server a Cluster of one master, because such a server accepts sharded subscriptions,
// too.
type alone struct{ *redis.Client }

func (a alone) MasterForKey(context.Context, string) (*redis.Client, error) { return a.Client, nil }
func (alone) ReloadState(context.Context)                                   {}

func TestMessagesOfShardedChannelsArrive(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	if err := rdb.SPublish(t.Context(), "nobody", "").Err(); err != nil &&
		strings.Contains(err.Error(), "unknown") {
		t.Skip("this server is older than Redis 7")
	}
	cluster := pubsub.Masters(alone{rdb})
	cluster.Reload(t.Context())
	h := pubsub.NewShardedHub(cluster, pubsub.Options{})
	t.Cleanup(h.Close)
	a, b := h.Subscribe(testlock.Prefix(rdb)+":a"), h.Subscribe(testlock.Prefix(rdb)+":b")
	awaitResubscribed(t, a)
	awaitResubscribed(t, b)
	for _, name := range []string{"a", "b"} {
		testlock.Must(t, rdb.SPublish(t.Context(), testlock.Prefix(rdb)+":"+name, "to "+name).Err())
	}
	awaitMessage(t, a, "to a")
	awaitMessage(t, b, "to b")
}
