package wire

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// Client is what is needed of go-redis.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Check says why a client will not do.
func Check(c Client) error {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("the client is nil (%T)", c)
	}
	if _, ring := c.(*redis.Ring); ring {
		return errors.New("a *redis.Ring moves keys to another server when one fails its pings, " +
			"so two owners could hold one lock; use one session for each server (and RedLock over them), " +
			"or a Cluster")
	}
	if fmt.Sprintf("%T", c) == "*redis.AutoPipeliner" { // of go-redis 9.22 or later
		return errors.New("a *redis.AutoPipeliner makes a holder wait for a batch to fill; " +
			"pass the client that it wraps")
	}
	return nil
}
