package wire

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
)

// wrapping is a hook that wraps the error of each command.
type wrapping struct{}

func wrapped(err error) error { return fmt.Errorf("the hook: %w", err) }

func (wrapping) DialHook(next redis.DialHook) redis.DialHook { return next }

func (wrapping) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil {
			return wrapped(err)
		}
		return nil
	}
}

func (wrapping) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestAScriptIsSentInFullThoughAHookWrapsTheErrorOfItsDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		defer server.Close()
		client := faultproxy.InMemory(t, server.Dial).Client(t)
		client.AddHook(wrapping{})
		l := NewLink(client, Options{Context: t.Context()})
		if o := l.Call(t.Context(), copier{NewScript("return 'x'")}, 1, nil); o.Reply != "x" || o.Err != nil {
			t.Errorf("reply %q, error %v", o.Reply, o.Err)
		}
	})
}

func TestAReplyIsRecognizedThoughAHookWrapsItsError(t *testing.T) {
	for reply, recognizes := range map[redisError]func(error) bool{
		"NOSCRIPT No matching script. Please use EVAL.":         noScript,
		"MOVED 866 127.0.0.1:7001":                              moved,
		"ASK 866 127.0.0.1:7001":                                moved,
		"MASTERDOWN Link with MASTER is down":                   orphaned,
		"READONLY You can't write against a read only replica.": demoted,
		"LOADING Redis is loading the dataset in memory":        mayHaveLost,
		"CLUSTERDOWN The cluster is down":                       mayHaveLost,
	} {
		other := wrapped(redisError("ERR " + reply[:3]))
		if !recognizes(reply) || !recognizes(wrapped(reply)) || recognizes(other) {
			t.Errorf("%s", reply)
		}
	}
}
