package main

import (
	"testing"
	"time"
)

func TestTheLifeOfAKeyIsReadable(t *testing.T) {
	for us, want := range map[float64]string{always: "forever", micros(150 * time.Second): "150.00 s"} {
		if got := life(us); got != want {
			t.Errorf("%v: %s", us, got)
		}
	}
}
