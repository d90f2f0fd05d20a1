package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if playRole() { // the tests start helpers, too
		return
	}
	goleak.VerifyTestMain(m)
}
