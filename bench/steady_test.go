package main

import (
	"slices"
	"strings"
	"testing"
)

func TestTheMoreRoundsTheFewerOfThemTheRangeOfTheMedianTakes(t *testing.T) {
	for n, want := range map[int]int{1: 0, 2: 0, 3: 0, 5: 0, 6: 1, 8: 1, 9: 2, 10: 2, 15: 4, 20: 6, 40: 15, 4000: 1963} {
		if k := spared(n); k != want {
			t.Errorf("of %d rounds %d are spared at either end, not %d", n, k, want)
		}
	}
}

// in are the rounds of a contender with these cycles/s.
func in(speeds ...float64) (rounds []figures) {
	for _, v := range speeds {
		rounds = append(rounds, figures{"cycles_per_s": v})
	}
	return rounds
}

func repeated(times int, speeds ...float64) []figures { return in(slices.Repeat(speeds, times)...) }

func TestThoseAreUnsteadyWhoseRoundsDoNotBearOutTheOrderOfTheirMedians(t *testing.T) {
	for name, test := range map[string]struct {
		rounds [][]figures // of contenders a, b, and so on
		want   string
	}{
		"apart":                           {[][]figures{in(100, 90, 95, 110, 80), in(20, 30, 25, 35, 40)}, ""},
		"overlapping":                     {[][]figures{in(100, 90, 95, 110, 80), in(70, 75, 60, 85, 65)}, "a, b"},
		"overlapping, but near":           {[][]figures{in(100, 90, 95, 110, 80), in(85, 95, 100, 105, 90)}, ""},
		"wide, but apart from all others": {[][]figures{in(10, 100, 20, 90, 30), in(9, 8, 7, 7, 7), in(200, 210, 205, 203, 202)}, ""},
		"only those concerned":            {[][]figures{in(1, 1, 1, 1, 1), in(10, 100, 20, 90, 30), in(60, 60, 60, 60, 60), in(500, 500, 500, 500, 500)}, "b, c"},
		"the same spread in more rounds":  {[][]figures{repeated(4, 100, 95, 90, 105, 110), repeated(4, 80, 85, 75, 70, 105)}, ""},
		"in as few as there were":         {[][]figures{repeated(1, 100, 95, 90, 105, 110), repeated(1, 80, 85, 75, 70, 105)}, "a, b"},
		"of two modes, however often":     {[][]figures{repeated(10, 10, 100), repeated(10, 30)}, "a, b"},
		"one round":                       {[][]figures{in(100), in(80)}, ""},
		"nobody succeeded":                {[][]figures{in(0, 0, 0, 0, 5), in(1, 2, 3, 4, 5)}, ""},
		"not measured in cycles":          {[][]figures{{{"handoff_p50_us": 3}, {"handoff_p50_us": 30}}, {{"handoff_p50_us": 9}, {"handoff_p50_us": 8}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*result
			for i, rounds := range test.rounds {
				all = append(all, &result{contender: contender{name: string(rune('a' + i))}, rounds: rounds})
			}
			var got []string
			for _, x := range unsteady(all) {
				got = append(got, x.contender.name)
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("unsteady are %q, not %q", got, test.want)
			}
		})
	}
}
