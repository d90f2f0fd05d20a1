package mutant

import (
	"slices"
	"testing"
)

// What is broken is there to be broken.
func TestMutantsApply(t *testing.T) {
	for _, m := range slices.Concat(All, Explored) {
		if _, _, err := m.Apply("../.."); err != nil {
			t.Error(err)
		}
	}
}
