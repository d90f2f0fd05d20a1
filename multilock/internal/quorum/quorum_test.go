package quorum

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestAQuorumWithAClosedSessionIsRefusedEachTime(t *testing.T) {
	for i := range 3 { // whose ids are in any order
		for _, before := range []bool{false, true} {
			members := memberSessions(t, 3)
			var parts []*quorums
			for _, m := range members {
				parts = append(parts, quorumsOf(t, m))
			}
			if before { // there was a quorum of them
				makeQuorum(t, 0, members...)
			}
			fake.Shutdown(t, members[i])
			for try := range 2 {
				if _, err := New(members, scripts, 0); !errors.Is(err, failure.ErrClosed) {
					t.Errorf("session %d is closed, try %d: %v", i, try, err)
				}
			}
			for j, p := range parts {
				if n := p.len(); n > 0 {
					t.Errorf("session %d is in %d quorums", j, n)
				}
			}
		}
	}
}

func TestQuorumsOfTheSameSessionsAreOne(t *testing.T) {
	m := memberSessions(t, 4)
	one := makeQuorum(t, 0, m[0], m[1], m[2])
	if one != makeQuorum(t, 0, m[2], m[0], m[1]) {
		t.Error("in another order it is another one")
	}
	for _, other := range []*Quorum{makeQuorum(t, time.Second, m[0], m[1], m[2]), makeQuorum(t, 0, m[0], m[1]), makeQuorum(t, 0, m[0], m[1], m[3])} {
		if one == other {
			t.Error("others are the same")
		}
	}
}

func TestAQuorumThatHasEndedIsForgottenByThoseThatLive(t *testing.T) {
	const n = 1000
	living := memberSessions(t, 2)
	var collected atomic.Int64
	for range n {
		func() {
			s, err := session.New(fake.Client(t, nil), living[0].Config) // which the test does not refer to in the end
			if err != nil {
				t.Fatal(err)
			}
			runtime.AddCleanup(makeQuorum(t, 0, living[0], s, living[1]), func(int) { collected.Add(1) }, 0)
			fake.Shutdown(t, s)
		}()
	}
	for _, m := range living {
		if n := quorumsOf(t, m).len(); n > 0 {
			t.Errorf("%d ended quorums are kept", n)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); collected.Load() < n; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d ended quorums are still referred to", n-collected.Load(), n)
		}
	}
	runtime.KeepAlive(living)
}

func TestQuorumsAreMadeAndEndedAtOnce(t *testing.T) {
	for range 20 {
		m := memberSessions(t, 5)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				for j := range 20 {
					some := []*session.Session{m[(i+j)%5], m[(i+j+1)%5], m[(i+j+2)%5]}
					if j%2 == 1 {
						slices.Reverse(some)
					}
					if _, err := New(some, scripts, 0); err != nil && !errors.Is(err, failure.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() { fake.Shutdown(t, m[0]) })
		wg.Go(func() { fake.Shutdown(t, m[1]) })
		wg.Wait()
		for _, s := range m[2:] {
			fake.Shutdown(t, s)
		}
	}
}
