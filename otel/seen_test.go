package otellock

import (
	"strconv"
	"testing"
)

func TestAPatternForEachNameFillsNoMemory(t *testing.T) {
	t.Parallel()
	var s seen
	for i := range most {
		if pattern := strconv.Itoa(i); !s.first("fair", pattern) || s.first("fair", pattern) {
			t.Fatalf("%s is not new once", pattern)
		}
	}
	if s.first("fair", "another") || s.first("fair", "0") || len(s.all) != most {
		t.Errorf("%d are remembered, want %d", len(s.all), most)
	}
}
