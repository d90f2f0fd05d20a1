package wire

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replicas says how many of them must confirm a grant, and in which time. With none, nothing is asked of them.
type Replicas struct {
	N       int
	Timeout time.Duration
}

// clusterClient is what a client that knows several servers must have, for WAIT to
// reach the one that wrote.
type clusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ForEachShard(ctx context.Context, fn func(ctx context.Context, node *redis.Client) error) error
}

// Check says why nothing could be confirmed so.
func (r Replicas) Check(c Client, lease time.Duration) error {
	if r.N < 0 {
		return fmt.Errorf("%d replicas", r.N)
	}
	if r.N == 0 {
		return nil
	}
	if r.Timeout < time.Millisecond {
		return fmt.Errorf("a timeout of %v is shorter than %v", r.Timeout, time.Millisecond)
	}
	if err := r.Fits(lease); err != nil {
		return err
	}
	var read time.Duration // beyond it, go-redis gives the connection up
	switch c := c.(type) {
	case *redis.Client:
		read = c.Options().ReadTimeout
	case *redis.ClusterClient:
		read = c.Options().ReadTimeout
	case clusterClient:
	default:
		return fmt.Errorf("a %T may know several servers, and WAIT must reach the one that wrote", c)
	}
	if read > 0 && r.Timeout >= read {
		return fmt.Errorf("a timeout of %v is not below the client's ReadTimeout of %v", r.Timeout, read)
	}
	return nil
}

// Fits: there is something left of a lease when it is confirmed.
func (r Replicas) Fits(lease time.Duration) error {
	if r.N > 0 && r.Timeout > lease/2 {
		return fmt.Errorf("a lease of %v is not twice as long as the timeout for replicas, %v", lease, r.Timeout)
	}
	return nil
}

// replicate is process for a script whose writes the replicas shall confirm. Their number is
// behind its reply.
func (l *Link) replicate(ctx context.Context, r Request, sc *Script) (reply string, err error) {
	defer l.survive(&err)
	to, asking := l.Server(r.key()), false
	for {
		wait := redis.NewIntCmd(ctx, "wait", l.options.Replicas.N, l.options.Replicas.Timeout.Milliseconds())
		pipe := to.Pipeline()
		if asking {
			_ = pipe.Process(ctx, once{redis.NewStatusCmd(ctx, "asking")})
		}
		_ = pipe.Process(ctx, r)
		_ = pipe.Process(ctx, once{wait})
		exec(ctx, pipe)
		switch err := r.Err(); {
		case noScript(err):
			r = r.asEval(sc)
		case err != nil && moved(err) && !asking:
			if to = l.named(err); to == nil {
				return "", err
			}
			asking = true
			r = Request{redis.NewStringCmd(ctx, r.Args()...)}
		case err != nil:
			return "", err
		default:
			return fmt.Sprint(r.Val(), " ", wait.Val()), wait.Err()
		}
	}
}

// named is the node that a MOVED or ASK names; nil if the client does not know it yet.
func (l *Link) named(redirect error) (to Server) {
	c, ok := l.client.(clusterClient)
	if !ok {
		return nil
	}
	words := strings.Fields(redirect.Error()) // MOVED SLOT ADDR
	found := make(chan *redis.Client, 1)
	_ = c.ForEachShard(l.options.Context, func(_ context.Context, node *redis.Client) error {
		if node.Options().Addr == words[len(words)-1] {
			select {
			case found <- node:
			default:
			}
		}
		return nil
	})
	select {
	case node := <-found:
		return node
	default:
		return nil
	}
}
