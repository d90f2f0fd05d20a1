package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTwoRunsAreComparedByTheOrderOfThoseThatAreApart(t *testing.T) {
	spread := 1.0
	run := func(cycles map[string]float64) *report {
		r := &report{}
		for _, name := range []string{"a", "b", "c"} {
			x := &result{scenario: scenario{name: "s"}, contender: contender{name: name}, figures: figures{"cycles_per_s": cycles[name]}}
			for _, factor := range []float64{100, spread, spread, 1, 1 / spread, 1 / spread, 0} { // the range of the median is without the first and the last
				x.rounds = append(x.rounds, figures{"cycles_per_s": cycles[name] * factor})
			}
			r.Results = append(r.Results, x)
		}
		r.Results = append(r.Results, &result{scenario: scenario{name: "other"}, contender: contender{name: "a"}, figures: figures{"cycles_per_s": 1}})
		return r
	}
	file := filepath.Join(t.TempDir(), "then.json")
	var then bytes.Buffer
	if err := run(map[string]float64{"a": 100, "b": 200, "c": 110}).writeJSON(&then); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, then.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		now           map[string]float64
		spread        float64
		told, problem string
	}{
		{map[string]float64{"a": 10, "b": 20, "c": 9}, 1, "2 have the same order in both, 0", ""}, // a and c were near each other
		{map[string]float64{"a": 10, "b": 11, "c": 11}, 1, "0 have the same order in both, 0", ""},
		{map[string]float64{"a": 30, "b": 20, "c": 11}, 1.2, "1 have the same order in both, 1", "s: b to a was 2.00, is 0.67"},
		{map[string]float64{"a": 30, "b": 20, "c": 11}, 1.3, "of their medians overlap.\ns: b to a was 2.00, is 0.67", ""},
	} {
		spread = x.spread
		var out bytes.Buffer
		err := run(x.now).compare(&out, file)
		if !strings.Contains(out.String(), x.told) || (err != nil) != (x.problem != "") || err != nil && !strings.Contains(err.Error(), x.problem) {
			t.Errorf("%v: %s %v", x.now, &out, err)
		}
	}
	if err := run(nil).compare(&bytes.Buffer{}, filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a missing file")
	}
}
