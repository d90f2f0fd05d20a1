package multilock

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
)

// stand waits in line, at the first server that answers, in the order in which the sessions were given, from
// one that the name decides. It returns when the turn has come, or the wait is over, or no server has a line.
// leave does not block.
func (v *vote) stand() (leave func()) {
	q := v.q
	h := fnv.New32a()
	_, _ = h.Write([]byte(v.l.name))
	first := int(h.Sum32() % uint32(len(q.servers)))
	for i := range q.servers {
		s := q.servers[(first+i)%len(q.servers)]
		if s.failing() || v.bounds.Over() {
			continue
		}
		if leave := v.standAt(s); leave != nil {
			return leave
		}
	}
	return func() {}
}

// standAt waits in line at one server; nil: there is none, or the wait is over.
func (v *vote) standAt(s *server) (leave func()) {
	q := v.q
	while, skip := context.WithCancel(v.bounds.Until)
	m := engine.New(s.line, turnKind, v.l.name, engine.Config{})
	come := ask(q, []int{0}, func(int) (*engine.Entry, error) {
		part := &engine.Part{While: while, Lost: func() {}}
		return m.Admitted(v.values, engine.Exclusive, engine.Config{Impatient: true, Part: part}, false)
	})
	look := time.NewTicker(turnLease / 4)
	defer look.Stop()
	for {
		select {
		case a := <-come:
			skip()
			if a.err == nil {
				return func() { q.home.Go(func() { _ = a.value.Unlock(context.Background()) }) }
			}
			if !v.bounds.Over() && !errors.Is(a.err, failure.ErrClosed) && !wire.Judge(a.err).Transient {
				q.warn(s, "waiters of a RedLock cannot stand in line at a server", v.l.name, a.err)
			}
			return nil
		case <-look.C:
		case <-v.bounds.Until.Done():
		}
		if s.failing() || v.bounds.Over() {
			skip()
			q.home.Go(func() {
				if a := <-come; a.value != nil {
					_ = a.value.Unlock(context.Background())
				}
			})
			return nil
		}
	}
}
