// Package single is the Store of one server, or of a Cluster in which each lock has one: that of the session itself. It is
// a mutex.Store, and knows neither how goroutines wait nor quorums.
//
// Begin with server.Ask. It keeps no state: the session has the link to the server and its clock.
package single

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// server is the session's own.
type server session.Session

// Store is the mutex.Store of a session with a server of its own, for a mutex.Kind.
func Store(s *session.Session) mutex.Store { return (*server)(s) }

// Ask asks the server. Whatever the reply says, a copy that was not answered may still take the lock.
func (s *server) Ask(a *mutex.Acquisition, most int, abandoned *atomic.Bool) wire.Outcome {
	o := s.Link.Call(a.Until, a.Lock.Kind.Lock, (*asking)(a), most, abandoned)
	if o.Unanswered != nil {
		a.Grant.Late = a.NotAfter // the release then leaves a tombstone
	}
	if r, ok := protocol.ParseAnswer(o.Reply); ok && o.Err == nil {
		s.Clock.Heard(r.Now, o.Sent) // by this clock the next request says how long it is welcome
	}
	return o
}

// asking is the attempt's request.
type asking mutex.Acquisition

// Request makes a copy. Each is welcome for as long after its own sending.
func (r *asking) Request(now time.Time) wire.Request {
	a := (*mutex.Acquisition)(r)
	args := &a.Lock.S().Args
	notAfter := a.WelcomeUntil(now, a.Lease()) // the acquisition remembers the latest, for Late
	keys := a.Lock.Keys
	k := a.Lock.Kind
	if len(k.LockArgs) > 0 || k.Publish != nil { // behind the arguments that all kinds have
		argv := append([]any{a.Grant.Owner, a.LeaseArg(), notAfter, args.About, args.Keep}, k.LockArgs...)
		if k.Publish != nil {
			argv = append(argv, keys.Channel, k.Publish)
		}
		return keys.Request(k.Lock, argv...)
	}
	return keys.Request(k.Lock, a.Grant.Owner, a.LeaseArg(), notAfter, args.About, args.Keep)
}

// Update has nothing to remember here: its caller judges the answer.
func (s *server) Update(ctx context.Context, t *mutex.Tenure, lease time.Duration, most int, abandoned *atomic.Bool) wire.Outcome {
	return s.Link.Call(ctx, protocol.Keep, &mutex.Update{T: t, Lease: lease}, most, abandoned)
}

// Release also works while a slot of a Cluster moves (protocol.Migrating).
func (s *server) Release(ctx context.Context, r *protocol.Release, most int) wire.Outcome {
	return s.Link.Call(ctx, r.Script, (*protocol.Migrating)(r), most, nil)
}

func (s *server) Silent(ctx context.Context, k *protocol.Keys) bool {
	return s.Link.Silent(ctx, k.Lock())
}

// ReleaseAll sends releases in batches, one server's beside another's.
func (s *server) ReleaseAll(ended []*mutex.Tenure) error {
	servers := map[wire.Server][]*mutex.Tenure{}
	for _, t := range ended {
		server := s.Link.Server(t.LeaseKey()) // in a Cluster, the master of the slot
		servers[server] = append(servers[server], t)
	}
	var (
		mu     sync.Mutex // guards failed
		failed []error
		wg     sync.WaitGroup
	)
	for server, tenures := range servers {
		wg.Go(func() {
			for chunk := range slices.Chunk(tenures, watchdog.MaxBatch) { // no pipeline is longer than those of renewals
				s.Link.Batch(s.Ctx, server, len(chunk), func(i int) (*wire.Script, wire.Request) {
					r := chunk[i].ReleaseRequest()
					return r.Script, r.Request(time.Time{})
				}, func(i int, reply string, err error) {
					t := chunk[i]
					if err != nil && wire.Judge(err).Resend { // alone this time: another release of the batch may be at fault
						r := t.ReleaseRequest()
						err = t.Lock.ReleaseGrant(s.Ctx, r.Grant, wire.Tries).Err
					}
					if err != nil {
						mu.Lock()
						failed = append(failed, t.Lock.Keys.Failed(err))
						mu.Unlock()
					}
				})
			}
		})
	}
	wg.Wait()
	return failure.Join(failed...)
}

// Listen does not wait until the subscription is confirmed: that comes as news, so that a waiter asks again.
func (s *server) Listen(channel string, sharded bool) *wakeup.Listener {
	if sharded {
		return wakeup.Listen(channel, s.ShardedHub)
	}
	return wakeup.Listen(channel, s.Hub)
}

func (s *server) Read(ctx context.Context, r *protocol.Same, most int) wire.Outcome {
	return s.Link.Call(ctx, r.Script, r, most, nil)
}
