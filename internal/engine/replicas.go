package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

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
		err = o.Err
	}
	return err
}

// confirm sends the request, whose copies may come twice or late: they set the lease of this very grant.
func (st *streak) confirm(ctx context.Context, lease time.Duration, left *atomic.Bool) wire.Outcome {
	l := st.lock
	s := l.s
	o := s.call(ctx, protocol.Confirm, &plain{l.keys, protocol.Confirm, []any{st.token, lease.Milliseconds(), s.memory}}, wire.Tries, left)
	reply, count, _ := strings.Cut(o.Reply, " ")
	o.Reply = reply
	if o = st.kept(o, lease); o.Err != nil {
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
		o.Err = l.fail(wire.Unexpected(count))
	case n < s.Replicas.N:
		o.Err = Public(&NotReplicatedError{Name: l.keys.Name, Confirmed: n, Wanted: s.Replicas.N, Timeout: s.Replicas.Timeout})
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
