package main

import (
	"bytes"
	"os/exec"
	"testing"
)

func TestGroffUnderstandsTheManual(t *testing.T) {
	t.Parallel()
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("SKIPPED: no groff in PATH")
	}
	var out bytes.Buffer
	check := exec.Command(groff, "-man", "-ww", "-z")
	check.Stdin = bytes.NewBufferString(manual(program(&out, &out)))
	if text, err := check.CombinedOutput(); err != nil || len(text) > 0 {
		t.Errorf("%v: %s", err, text)
	}
}
