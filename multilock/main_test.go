package multilock_test

import (
	"context"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) { testlock.Main(m, contend) }

var bg = context.Background()

// free reports whether nobody holds any of the locks.
func free(t testing.TB, ms ...*rlock.Mutex) bool {
	t.Helper()
	for _, m := range ms {
		st := testlock.Inspect(t, m)
		if st.Held || len(st.Queue) > 0 {
			return false
		}
	}
	return true
}
