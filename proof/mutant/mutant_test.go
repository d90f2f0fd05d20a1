package mutant

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// What is broken is there to be broken, and is still Go: nightly alone would find out.
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
