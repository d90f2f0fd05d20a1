//go:build !race

// The race detector makes exploring ten times slower. Other tests run the same code with it.

package explore

import (
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/script"
)

func TestWorlds(t *testing.T) {
	for _, w := range Worlds() {
		if *only == "" && !w.Small || *only != "" && *only != "all" && *only != w.Name {
			continue
		}
		t.Run(w.Name, func(t *testing.T) {
			if *bound >= 0 {
				w.Detours = *bound
			}
			if *replay != "" {
				r := Replay(t, w, script.Text, strings.Split(*replay, "; "))
				t.Log("\n" + strings.Join(r.Events, "\n"))
				if r.Failure != nil {
					t.Error(r.Failure)
				}
				return
			}
			r := Explore(t, w, script.Text, *most, *atMost)
			t.Logf("%s: %v", w.Name, r)
			if r.Failure != nil {
				r = Simplest(t, w, script.Text, r)
				again := Replay(t, w, script.Text, r.Path)
				t.Log("\n" + strings.Join(again.Events, "\n"))
				t.Errorf("%v\nThe same steps again: %v\nTo see them: go test -v ./proof/explore "+
					"-run 'Worlds/%s$' -world %s -detours %d -replay '%s'",
					r.Failure, again.Failure, w.Name, w.Name, w.Detours, strings.Join(r.Path, "; "))
			}
			if *only == "" && !r.Complete && r.Failure == nil {
				t.Error("a small world must be explored whole")
			}
			if r.Diverged > r.Runs/10 {
				t.Error("too many runs cannot repeat the steps of an earlier one")
			}
		})
	}
}
