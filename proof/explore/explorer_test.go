package explore

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/proof/mutant"
)

// world returns the world with this name.
func world(t *testing.T, name string) World {
	all := Worlds()
	i := slices.IndexFunc(all, func(w World) bool { return w.Name == name })
	if i < 0 {
		t.Fatalf("there is no world %q", name)
	}
	return all[i]
}

// Session ids and nonces are random, and the scheduler decides the order of goroutines. If states depended on
// them, the explorer would visit each state again and again.
func TestTheSameStepsLeadToTheSameStates(t *testing.T) {
	w := world(t, "fairlock-session")
	states := func() (all []fingerprint) {
		e := newExplorer(t, &w, script.Text)
		defer e.close()
		e.bubble(func(r *run) {
			for {
				steps, done := e.look(r)
				if done {
					return
				}
				all = append(all, r.fingerprint())
				r.take(steps, 0)
			}
		})
		if e.result.Failure != nil {
			t.Fatal(e.result.Failure)
		}
		return all
	}
	first := states()
	if len(first) < 10 {
		t.Fatalf("a run of %d steps", len(first))
	}
	for range 5 {
		if again := states(); !slices.Equal(first, again) {
			t.Fatal("the same steps lead to other states")
		}
	}
	slices.SortFunc(first, func(a, b fingerprint) int { return slices.Compare(a[:], b[:]) })
	if n := len(slices.Compact(first)); n != len(first) {
		t.Errorf("only %d states of %d differ", n, len(first))
	}
}

// Without this test, an explorer that notices nothing would pass all tests of this package.
func TestABrokenScriptIsNoticedAndTheStepsShowItAgain(t *testing.T) {
	for _, c := range []struct {
		mutant, world, failure string
		withoutModel           bool
	}{
		{"lock skips the owner check", "rlock", "has the lock now, and must not", false},
		{"a hand-over sends no message, of rlock", "rlock", "and gets no message", false},
		{"one that asks again gets another place", "fairlock-three", "the queue must be", false},
		{"lock skips the owner check", "rlock", "Redis has not granted", true},
		{"a hand-over sends no message, of rlock", "rlock", "no call returns for", true},
		{"one that asks again gets another place", "fairlock-three", "and has the lock before", true},
		{"no tombstone for a late copy", "rlock-cut", "in Redis, after all have unlocked", true},
	} {
		t.Run(c.mutant+": "+c.failure, func(t *testing.T) {
			i := slices.IndexFunc(mutant.All, func(m mutant.Mutant) bool { return m.Name == c.mutant })
			if i < 0 {
				t.Fatal("there is no such mutant")
			}
			broken, err := mutant.All[i].Scripts(filepath.Join("..", ".."))
			if err != nil {
				t.Fatal(err)
			}
			w := world(t, c.world)
			w.withoutModel = c.withoutModel
			r := Explore(t, w, broken, *most, time.Minute)
			if r.Failure == nil || !strings.Contains(r.Failure.Error(), c.failure) {
				t.Log(strings.Join(Replay(t, w, broken, r.Path).Events, "\n"))
				t.Fatalf("%v: %v", r, r.Failure)
			}
			again := Replay(t, w, broken, r.Path)
			if again.Failure == nil || again.Failure.Error() != r.Failure.Error() {
				t.Errorf("after the same steps: %v", again.Failure)
			}
			if right := Replay(t, w, script.Text, r.Path); right.Failure != nil &&
				!strings.Contains(right.Failure.Error(), "is not possible here") {
				t.Errorf("after the same steps, with the right script: %v", right.Failure)
			}
		})
	}
}
