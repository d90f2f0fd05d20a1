package main

import (
	"bytes"
	"runtime"
	"testing"
)

func TestVersionSaysWhatItWasBuiltWith(t *testing.T) {
	defer func(before string) { version = before }(version)
	version = "v0.1.0"
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"lockline", "--version"}, &out, &errOut)
	want := "lockline 0.1.0 (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")\n"
	if code != exitOK || out.String() != want {
		t.Errorf("exit code %d: %s%s, want %s", code, &out, &errOut, want)
	}
}
