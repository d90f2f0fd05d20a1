//go:build !race

// The race detector finds nothing in a single goroutine and makes exploring ten times slower.

package explore

import (
	"testing"

	"github.com/lockline/lockline/internal/script"
)

func TestWorlds(t *testing.T) {
	for _, w := range Worlds() {
		if *only == "" && !w.Small || *only != "" && *only != "all" && *only != w.Name {
			continue
		}
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			r, err := w.Explore(script.Text, *most)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %v", w.Name, r)
			if r.Violation != nil {
				t.Error(r.Story())
			}
			if w.Small && !r.Complete {
				t.Error("a small world is to be explored whole")
			}
		})
	}
}
