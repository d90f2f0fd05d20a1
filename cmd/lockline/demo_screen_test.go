package main

import (
	"bytes"
	"testing"
)

func TestColorCanBeForcedWithoutATerminal(t *testing.T) {
	for _, test := range []struct{ force, no, want string }{
		{"", "", "HOLD"},
		{"0", "", "HOLD"},
		{"1", "", "\x1b[32mHOLD\x1b[0m"},
		{"1", "1", "HOLD"},
	} {
		t.Setenv("CLICOLOR_FORCE", test.force)
		t.Setenv("NO_COLOR", test.no)
		var out bytes.Buffer
		n, err := (painter{&out}).Write([]byte("HOLD"))
		if n != 4 || err != nil || out.String() != test.want {
			t.Errorf("CLICOLOR_FORCE=%q, NO_COLOR=%q: %q, %d, %v", test.force, test.no, &out, n, err)
		}
	}
}
