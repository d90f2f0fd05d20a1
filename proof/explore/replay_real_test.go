package explore

import (
	"testing"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/proof/mutant"
)

// The shortest trace of a mutant causes a violation on a real server as well, and causes none there with the
// correct scripts.
func TestATraceBreaksTheSameOnARealServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mutant, world string }{
		{"one that asks hands on a lock that is held", "rlock"},
		{"a waiter that leaves keeps its place", "fairlock-late"},
		{"a tombstone is not looked at", "rlock-late"},
	} {
		t.Run(c.mutant, func(t *testing.T) {
			t.Parallel()
			w, m := worldNamed(t, c.world), mutantNamed(t, c.mutant)
			broken, err := m.Scripts(root)
			if err != nil {
				t.Fatal(err)
			}
			r, err := w.Explore(broken, *most)
			if err != nil || r.Violation == nil {
				t.Fatalf("found nothing: %v", err)
			}
			t.Log(r.Story())
			client := testredis.Start(t).Client(t)
			violation, diverged, err := w.Replay(t.Context(), broken, r.Trace, client)
			if err != nil || diverged || violation == nil {
				t.Errorf("with the broken script: %v, diverged %v, %v", violation, diverged, err)
			}
			t.Logf("on a real server: %v", violation)
			violation, diverged, err = w.Replay(t.Context(), script.Text, r.Trace, client)
			if err != nil || violation != nil {
				t.Errorf("with the script as it is: %v, diverged %v, %v", violation, diverged, err)
			}
		})
	}
}

func worldNamed(t *testing.T, name string) World {
	for _, w := range Worlds() {
		if w.Name == name {
			return w
		}
	}
	t.Fatalf("no world %q", name)
	return World{}
}

func mutantNamed(t *testing.T, name string) mutant.Mutant {
	for _, m := range mutant.Explored {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("no mutant %q", name)
	return mutant.Mutant{}
}
