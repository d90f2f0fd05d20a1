package latch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
)

func inspect(t testing.TB, l *latch.Latch) latch.State {
	t.Helper()
	st, err := l.Inspect(bg)
	testlock.Must(t, err)
	return st
}

func TestInspectShowsTheCountAndTheParties(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 2)
	if st := inspect(t, ls[0]); st.Name != "x" || st.Count != 0 || len(st.Parties) != 0 {
		t.Errorf("of none: %+v", st)
	}
	set(t, ls[0], 4)
	names := []string{"a", "two words\nand 3 lines ", "1 x 1 y"}
	parties := map[string]*latch.Party{}
	for i, name := range names {
		_, parties[name] = join(t, ls[i%2], name)
	}
	testlock.Must(t, parties["a"].Abandon(bg))
	st := inspect(t, ls[1])
	var shown []string
	for _, p := range st.Parties {
		shown = append(shown, p.Name)
		if !strings.HasPrefix(p.Owner, p.Session+":") || p.Remaining < 0 || p.Remaining > 30*time.Second || (p.Remaining == 0) != (p.Name == "a") {
			t.Errorf("%+v", p)
		}
	}
	if st.Count != 4 || shown[0] != "a" {
		t.Errorf("the first to end is not the first: %+v", st)
	}
	slices.Sort(shown)
	slices.Sort(names)
	if !slices.Equal(shown, names) {
		t.Errorf("%q, want %q", shown, names)
	}
	testlock.Must(t, parties["1 x 1 y"].CountDown(bg))
	if st := inspect(t, ls[0]); st.Count != 3 || len(st.Parties) != 2 {
		t.Errorf("after a party has counted: %+v", st)
	}
	testlock.Must(t, rdb.HSet(bg, key, "n", "many").Err())
	if _, err := ls[0].Inspect(bg); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("of an odd count: %v", err)
	}
	testlock.Must(t, rdb.HSet(bg, key, "n", "3").Err())
}

func TestInspectDoesNotKeepALatch(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		l := latch.New(s, "x", latch.WithLifetime(time.Hour))
		set(t, l, 1)
		time.Sleep(50 * time.Minute)
		if st := inspect(t, l); st.Count != 1 {
			t.Errorf("%+v", st)
		}
		time.Sleep(11 * time.Minute)
		if w.Exists(key) {
			t.Error("it lives on")
		}
	})
}
