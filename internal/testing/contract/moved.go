package contract

import (
	"sync"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// movedEndpoint tests processes with pooled connections to former masters. These servers have become
// replicas, and their data do not change any more. If servesStale is true, they answer with these data.
func movedEndpoint(t *testing.T, k Kind, servesStale bool) {
	var endpoints []*testlock.Endpoint
	for range max(k.Servers, 1) {
		endpoints = append(endpoints, testlock.NewEndpoint(t))
	}
	newProcess := func() *process {
		p := &process{}
		for _, e := range endpoints {
			p.sessions = append(p.sessions, testlock.NewSession(t, e.Client(t)))
		}
		p.lock, p.rival = k.New(p.sessions), k.Rival(p.sessions)
		return p
	}
	holder, asking, looking := newProcess(), newProcess(), newProcess()
	_, hold := testlock.Lock(t, holder.lock("taken"), bg)
	defer func() { _ = hold.Unlock(bg) }() // returns an error, because the hold is lost
	var all sync.WaitGroup
	for range 10 { // opens several connections, most of which stay in the pool
		all.Go(func() {
			_, _, err := asking.rival("taken").TryLock(bg)
			testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
			if st := inspect(t, looking.lock("taken")); !st.Held {
				t.Errorf("Inspect: %+v", st)
			}
		})
	}
	all.Wait()
	direct := &process{}
	for _, e := range endpoints {
		e.Move(t, servesStale)
		direct.sessions = append(direct.sessions, testlock.NewSession(t, e.Promoted.Client(t)))
	}
	force(t, k.New(direct.sessions)("taken"))
	_, other := testlock.Lock(t, k.New(direct.sessions)("free"), bg)
	if st := inspect(t, looking.lock("free")); !st.Held {
		t.Errorf("Inspect of what is held: %+v", st)
	}
	if st := inspect(t, looking.lock("taken")); st.Held {
		t.Errorf("Inspect of what is free: %+v", st)
	}
	_, mine := testlock.TryLock(t, asking.rival("taken"), bg)
	_, _, err := asking.rival("free").TryLock(bg)
	testlock.WantError(t, "TryLock of what is held", err, rlock.ErrLocked)
	testlock.Unlock(t, mine, other)
}
