package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if playRole() { // the tests start helpers, too
		return
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // of helpers, which the race detector would have sleep for a second as they end
	goleak.VerifyTestMain(m)
}
