//go:build nightly

package explore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/proof/mutant"
)

// runs reports whether the mutant changes a script of the world, or a library of scripts.
func (w World) runs(m mutant.Mutant) bool {
	name, ok := strings.CutSuffix(strings.TrimPrefix(m.File, "internal/script/lua/"), ".lua")
	return ok && (!strings.Contains(name, "/") || slices.Contains(w.scripts, name))
}

// Each mutant of a script causes a violation in a world of its kind. The test logs a table of the worlds and
// of the numbers of steps.
func TestEachScriptMutantIsFound(t *testing.T) {
	var table []string
	for _, m := range slices.Concat(mutant.All, mutant.Explored) {
		var worlds []World
		for _, w := range Worlds() {
			if kind, _, _ := strings.Cut(w.Name, "-"); strings.HasPrefix(m.Kind, kind) && w.runs(m) {
				worlds = append(worlds, w)
			}
		}
		if m.Harmless != "" || m.Test[0] != "" || len(worlds) == 0 {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			broken, err := m.Scripts(root)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range worlds {
				r, err := w.Explore(broken, *most)
				if err != nil {
					t.Fatal(err)
				}
				if r.Violation != nil {
					table = append(table, fmt.Sprintf("| %s | %s | %d | %d + %d | %v |",
						m.Name, w.Name, r.States, len(r.Trace), r.InCalm, r.Violation))
					t.Log(r.Story())
					return
				}
			}
			t.Errorf("no world of %d states notices it", *most)
		})
	}
	t.Logf("\n| mutant | world | states | steps | what is noticed |\n|---|---|--:|--:|---|\n%s",
		strings.Join(table, "\n"))
}
