package quorum

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
)

// alarm says which grant is gone.
func alarm(k *protocol.Keys, g *protocol.Grant) (channel, message any) {
	return k.Channel, g.Token
}

// Update tells all members that may hold the grant. It waits only for the answers of a majority.
func (q *Quorum) Update(ctx context.Context, t *mutex.Tenure, lease time.Duration, most int, abandoned *atomic.Bool) wire.Outcome {
	b := roundOf(&t.Grant)
	return b.send(&request{
		ctx: ctx, script: protocol.Keep, most: most, abandoned: abandoned,
		copyFor:  func(int) wire.Copier { return &mutex.Update{T: t, Lease: lease} },
		answered: func(i int, o wire.Outcome) { b.kept(i, o, lease) },
		counted:  func(int, wire.Outcome) {},
	}).outcome()
}

// Release returns when a majority has answered.
func (q *Quorum) Release(ctx context.Context, r *protocol.Release, most int) wire.Outcome {
	return roundOf(&r.Grant).release(ctx, r, most).outcome()
}

// Silent is always true: an answer of the majority can take long.
func (q *Quorum) Silent(context.Context, *protocol.Keys) bool { return true }

// ReleaseAll gives back what tenures held that have ended. Each is a request of its own to its members: a session holds
// few RedLocks, so batches would save little.
func (q *Quorum) ReleaseAll(ended []*mutex.Tenure) error {
	var (
		mu     sync.Mutex // guards failed
		failed []error
		wg     sync.WaitGroup
	)
	for _, t := range ended {
		wg.Go(func() {
			r := t.ReleaseRequest()
			if err := q.Release(q.s.Ctx, &r, wire.Tries).Err; err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, t.Lock.Keys.Failed(err))
			}
		})
	}
	wg.Wait()
	return failure.Join(failed...)
}

// Listen subscribes at all members. Each is one server, which has no shards.
func (q *Quorum) Listen(channel string, _ bool) *wakeup.Listener {
	hubs := make([]*pubsub.Hub, len(q.members))
	for i, m := range q.members {
		hubs[i] = m.Hub
	}
	return wakeup.Listen(channel, hubs...)
}

// Read sends a request to all members, slow ones too: an operator wants to know what every server has. The answers of those that are in time, if they are a majority, come line by line.
func (q *Quorum) Read(ctx context.Context, r *protocol.Same, most int) wire.Outcome {
	o := wire.Outcome{Sent: time.Now()}
	answers := make(chan wire.Outcome, len(q.members))
	for _, m := range q.members {
		q.s.Go(func() {
			one := m.Link.Call(ctx, r.Script, r, most, nil)
			if one.Err != nil {
				one.Err = m.named(one.Err)
			}
			answers <- one
		})
	}
	timer := time.NewTimer(q.timeout)
	defer timer.Stop()
	var failing []error
	var replies []string
	for n := 0; n < len(q.members); n++ {
		select {
		case one := <-answers:
			if one.Err == nil {
				replies = append(replies, one.Reply)
			} else {
				failing = append(failing, one.Err)
			}
		case <-timer.C:
			n = len(q.members)
			failing = append(failing, errLate)
		}
	}
	if len(replies) < q.need {
		o.Err = q.noMajority(len(replies), failing...)
	}
	o.Reply = strings.Join(replies, "\n")
	return o
}

// State is the lock as a majority of the members has it.
func (q *Quorum) State(name, replies string) (protocol.State, error) {
	owners := map[string][]protocol.State{}
	free := protocol.State{Name: name}
	for reply := range strings.Lines(replies) {
		st, err := protocol.DecodeState(name, reply)
		if err != nil {
			return protocol.State{}, err
		}
		if st.Held {
			owners[st.Owner] = append(owners[st.Owner], st)
		}
		free.Token = max(free.Token, st.Token)
	}
	for _, held := range owners {
		if len(held) < q.need {
			continue
		}
		slices.SortFunc(held, func(a, b protocol.State) int { return cmp.Compare(b.Remaining, a.Remaining) })
		st := held[q.need-1] // the majority lasts no longer
		st.Servers = len(held)
		for _, other := range held {
			st.Token = max(st.Token, other.Token)
		}
		return st, nil
	}
	return free, nil
}

// Holder is the owner field: the servers may each have another token for one holder.
func (q *Quorum) Holder(ctx context.Context, token int64, inspect func(context.Context) (protocol.State, error)) (holder any, ok bool, err error) {
	st, err := inspect(ctx)
	if err != nil || !st.Held || st.Token != token {
		return nil, false, err
	}
	return st.Owner, true, nil
}
