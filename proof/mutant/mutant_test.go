package mutant

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Each mutant must find the text that it replaces, and the changed file must still be Go. Otherwise only the
// nightly tests would notice a mutant that does not work any more.
func TestMutantsApply(t *testing.T) {
	for _, m := range slices.Concat(All, Explored) {
		path, broken, err := m.Apply("../..")
		if err == nil && strings.HasSuffix(path, ".go") {
			_, err = parser.ParseFile(token.NewFileSet(), path, broken, 0)
		}
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}
