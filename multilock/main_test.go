package multilock_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the servers in this process allocate much
	testlock.Main(m, contend)
}

var bg = context.Background()

// free reports whether all of these locks are free, and nobody waits for them.
func free[M testlock.Mutex](t testing.TB, ms ...M) bool {
	t.Helper()
	for _, m := range ms {
		st := testlock.Inspect[rlock.State](t, m)
		if st.Held || len(st.Queue) > 0 {
			return false
		}
	}
	return true
}

// namesOf returns n locks of one session, as Mutexes and as members.
func namesOf(s *rlock.Session, n int) (ms []*rlock.Mutex, members []rlock.Locker) {
	for i := range n {
		m := rlock.New(s, fmt.Sprint("m", i))
		ms, members = append(ms, m), append(members, m)
	}
	return ms, members
}
