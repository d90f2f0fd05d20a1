package mutex

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// confirm has the replicas confirm the grant that the lock is held by, however its session learned of it, unless they
// have. With a time-out of its own, it is not bound by the time that the wait may take.
func (a *Acquisition) confirm(t *Tenure) error {
	l := a.Lock
	if l.S().Replicas.N == 0 {
		return nil
	}
	l.Mu.Lock()
	confirmed := t.confirmed
	l.Mu.Unlock()
	if confirmed {
		return nil
	}
	defer func(until context.Context) { a.Until = until }(a.Until)
	a.Until = a.Ctx
	return a.tell(t.confirm)
}

// confirm sends the request, whose copies may come twice or late: they set the lease of this very grant.
func (t *Tenure) confirm(ctx context.Context, lease time.Duration, most int, abandoned *atomic.Bool) wire.Outcome {
	l := t.Lock
	s := l.S()
	request := &protocol.Same{Script: protocol.Confirm, Keys: l.Keys, Alone: true, Argv: []any{t.Grant.Token, lease.Milliseconds(), s.Args.Keep}}
	o := s.Link.Call(ctx, protocol.Confirm, request, most, abandoned)
	reply, count, _ := strings.Cut(o.Reply, " ")
	o.Reply = reply
	if o = t.kept(o, lease); o.Err != nil {
		return o
	}
	n, err := strconv.Atoi(count)
	l.Mu.Lock()
	if n >= s.Replicas.N {
		t.confirmed, t.refused = true, false
	} else if !t.confirmed {
		t.refused = true
	}
	l.Mu.Unlock()
	switch {
	case err != nil:
		o.Err = l.Fail(wire.Unexpected(count))
	case n < s.Replicas.N:
		o.Err = failure.Public(&failure.NotReplicatedError{Name: l.Keys.Name, Confirmed: n, Wanted: s.Replicas.N, Timeout: s.Replicas.Timeout})
	}
	return o
}
