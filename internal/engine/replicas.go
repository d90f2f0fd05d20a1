package engine

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
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

func (r Replicas) check(c Client, lease time.Duration) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("lockline: WithReplicas: "+format, args...)
	}
	if r.N < 0 {
		return fail("%d replicas", r.N)
	}
	if r.N == 0 {
		return nil
	}
	if r.Timeout < time.Millisecond {
		return fail("a time-out of %v is shorter than %v", r.Timeout, time.Millisecond)
	}
	if err := r.fits(lease); err != nil {
		return fail("%w", err)
	}
	var read time.Duration // beyond it, go-redis gives the connection up
	switch c := c.(type) {
	case *redis.Client:
		read = c.Options().ReadTimeout
	case *redis.ClusterClient:
		read = c.Options().ReadTimeout
	case clusterClient:
	default:
		return fail("a %T may know several servers, and WAIT must reach the one that wrote", c)
	}
	if read > 0 && r.Timeout >= read {
		return fail("a time-out of %v is not below the client's ReadTimeout of %v", r.Timeout, read)
	}
	return nil
}

// fits: there is something left of a lease when it is confirmed.
func (r Replicas) fits(lease time.Duration) error {
	if r.N > 0 && r.Timeout > lease/2 {
		return fmt.Errorf("a lease of %v is not twice as long as the time-out for replicas, %v", lease, r.Timeout)
	}
	return nil
}

//go:embed confirm.lua
var confirmBody string

// confirmScript is shared by all kinds of locks, as keepScript is.
var confirmScript = NewScript(confirmBody)

// confirm has the replicas confirm the grant that the lock is held by, however its
// session heard of it, unless they have.
func (a *acquisition) confirm(st *streak) error {
	l := a.l
	if l.s.Replicas.N == 0 || a.led {
		return nil
	}
	l.mu.Lock()
	confirmed := st.confirmed
	l.mu.Unlock()
	if confirmed {
		return nil
	}
	expired := a.expired
	a.expired, a.confirming = nil, true // its time-out is another
	o, err := a.exchange(st)
	a.expired, a.confirming = expired, false
	if err == nil {
		err = o.err
	}
	return err
}

// confirm sends the request, whose copies may come twice or late: they set the lease of this very grant.
func (st *streak) confirm(ctx context.Context, lease time.Duration, left *atomic.Bool) outcome {
	l := st.lock
	s := l.s
	o := s.call(ctx, confirmScript, &plain{l.keys, confirmScript, []any{st.token, lease.Milliseconds(), s.memory}}, tries, left)
	reply, count, _ := strings.Cut(o.reply, " ")
	o.reply = reply
	if o = st.kept(o, lease); o.err != nil {
		return o
	}
	n, err := strconv.Atoi(count)
	l.mu.Lock()
	if n >= s.Replicas.N {
		st.confirmed, st.refused = true, false
	} else if !st.confirmed {
		st.refused = true
	}
	l.mu.Unlock()
	switch {
	case err != nil:
		o.err = l.fail(unexpected(count))
	case n < s.Replicas.N:
		o.err = Public(&NotReplicatedError{Name: l.keys.Name, Confirmed: n, Wanted: s.Replicas.N, Timeout: s.Replicas.Timeout})
	}
	return o
}

// confirmed: the company's grants came before the leader's confirmation, on the same server.
func (c *companion) confirmed() {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	c.got.of.(*entry).st.confirmed = true
}

// replicate is process for a script whose writes the replicas shall confirm. Their number is
// behind its reply.
func (s *Session) replicate(ctx context.Context, r request, sc *Script) (reply string, err error) {
	defer s.survive(&err)
	to, asking := s.server(r.Args()[3].(string)), false
	for {
		wait := redis.NewIntCmd(ctx, "wait", s.Replicas.N, s.Replicas.Timeout.Milliseconds())
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
			if to = s.named(err); to == nil {
				return "", err
			}
			asking = true
			r = request{redis.NewStringCmd(ctx, r.Args()...)}
		case err != nil:
			return "", err
		default:
			return fmt.Sprint(r.Val(), " ", wait.Val()), wait.Err()
		}
	}
}

// named is the node that a MOVED or ASK names; nil if the client does not know it yet.
func (s *Session) named(redirect error) (to pipeliner) {
	c, ok := s.client.(clusterClient)
	if !ok {
		return nil
	}
	words := strings.Fields(redirect.Error()) // MOVED SLOT ADDR
	found := make(chan *redis.Client, 1)
	_ = c.ForEachShard(s.ctx, func(_ context.Context, node *redis.Client) error {
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

// NotReplicatedError is the ErrNotReplicated of an acquisition.
type NotReplicatedError struct {
	Name              string
	Confirmed, Wanted int
	Timeout           time.Duration
}

func (e *NotReplicatedError) Error() string {
	return fmt.Sprintf("lockline: lock %q: given back: %d of %d replicas have confirmed it in %v", e.Name, e.Confirmed, e.Wanted, e.Timeout)
}

func (e *NotReplicatedError) Unwrap() error { return ErrNotReplicated }
