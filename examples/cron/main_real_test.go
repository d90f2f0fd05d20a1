package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachTickIsDoneOnceAlsoIfAnInstanceFails(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	begun, done, err := run(t.Context(), "redis://"+testredis.Embedded(t).Addr(), &out)
	if err != nil {
		t.Fatal(err)
	}
	for tick := int64(1); tick <= ticks; tick++ {
		wantBegun := 1
		if tick == 2 { // tick at which the first instance fails
			wantBegun = 2
		}
		if begun[tick] != wantBegun || done[tick] != 1 {
			t.Errorf("tick %d was begun %d times, want %d, and done %d times",
				tick, begun[tick], wantBegun, done[tick])
		}
	}
	if n := strings.Count(out.String(), "done by"); n != ticks {
		t.Errorf("%d lines of output: %s", n, &out)
	}
}
