package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// TestMain makes the test binary run as the program, or as one of its processes, if an argument or a variable
// says so. Otherwise it runs the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "soak" {
		os.Exit(run(os.Args[2:], os.Stdout, os.Stderr))
	}
	if os.Getenv(childEnv) != "" {
		os.Exit(run(nil, os.Stdout, os.Stderr))
	}
	// By default, a program with the race detector sleeps for a second before it exits.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testredis.Run(m)
}

func TestHelpTellsWhatItDoesAndWrongArgumentsAreRefusedInOneLine(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run([]string{"--help"}, &out, &errOut); code != exitOK || errOut.Len() > 0 {
		t.Errorf("--help: exit code %d, %s", code, &errOut)
	}
	for _, what := range []string{"exit code is 0", "-redis", "-processes", "-lease", "-for"} {
		if !strings.Contains(out.String(), what) {
			t.Errorf("--help doesn't tell of %q:\n%s", what, &out)
		}
	}
	for _, args := range []string{"extra", "--processes 0", "--processes 65", "--lease 1ms",
		"--for soon", "--nonsense",
		"--redis rediss://127.0.0.1:1", "--redis redis://127.0.0.1:1?master_name=x"} {
		var out, errOut bytes.Buffer
		code := run(strings.Fields(args), &out, &errOut)
		text := errOut.String()
		if code != exitTrouble || out.Len() > 0 || !strings.HasPrefix(text, "soak: ") ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q and %q", args, code, &out, text)
		}
	}
}
