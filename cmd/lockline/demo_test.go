package main

import (
	"bytes"
	"testing"
)

func TestColorCanBeForcedWithoutATerminal(t *testing.T) {
	for _, test := range []struct {
		force, no string
		want      bool
	}{
		{"", "", false},
		{"0", "", false},
		{"1", "", true},
		{"1", "1", false},
	} {
		t.Setenv("CLICOLOR_FORCE", test.force)
		t.Setenv("NO_COLOR", test.no)
		if got := colourful(new(bytes.Buffer)); got != test.want {
			t.Errorf("CLICOLOR_FORCE=%q, NO_COLOR=%q: color is %v", test.force, test.no, got)
		}
	}
}
