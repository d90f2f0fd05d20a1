package main

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/schollz/progressbar/v3"
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

func TestTheUnsteadyHaveFurtherRoundsInTurns(t *testing.T) {
	always := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	cases := map[string]struct {
		planned int
		speed   map[string]func(round int) float64
		want    map[string]int // rounds
	}{
		"all are steady": {5, map[string]func(int) float64{"a": always(100), "b": always(50)}, map[string]int{"a": 5, "b": 5}},
		"one never is": {5, map[string]func(int) float64{
			"slow": always(1), "fast": always(1000), "near": always(60),
			"fickle": func(n int) float64 { return []float64{20, 200}[n%2] },
		}, map[string]int{"slow": 5, "fast": 5, "near": 5 * furthest, "fickle": 5 * furthest}},
		"one is but for its start": {5, map[string]func(int) float64{
			"slow": always(1), "near": always(60),
			"cold": func(n int) float64 { return min(100, 10+90*float64(n)) },
		}, map[string]int{"slow": 5, "near": 6, "cold": 6}},
		"there is but one round": {1, map[string]func(int) float64{
			"near": always(60), "fickle": func(n int) float64 { return math.Pow(10, float64(n%2)) },
		}, map[string]int{"near": 1, "fickle": 1}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			rounds := map[string]int{}
			var further []string
			fake := func(_ context.Context, b bout) (sample, error) {
				who := b.contender.name
				v := test.speed[who](rounds[who])
				if rounds[who]++; rounds[who] > test.planned {
					further = append(further, who)
				}
				return sample{figures: figures{"cycles_per_s": v}}, nil
			}
			calm := func(context.Context, bout) (sample, error) { return sample{figures: figures{"cycles_per_s": 1}}, nil }
			p := plan{&site{}, test.planned, briefly, []scenario{{name: "calm", run: calm}, {name: "s", run: fake}}}
			r := newReport(p.at, nil, p.rounds, p.window)
			var who []contender
			for _, name := range slices.Sorted(maps.Keys(test.speed)) {
				who = append(who, contender{name: name})
			}
			r.describe(p.scenarios, who)
			bar := progressbar.DefaultSilent(-1)
			if err := p.run(t.Context(), r, bar); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(rounds, test.want) {
				t.Errorf("rounds: %v, not %v", rounds, test.want)
			}
			bouts := len(r.Results) // those of their own
			for _, x := range r.Results {
				bouts += len(x.rounds)
				if x.scenario.name == "calm" && len(x.rounds) != test.planned {
					t.Errorf("%s has %d rounds in a scenario where all are steady", x.contender.name, len(x.rounds))
				}
			}
			if n, all := bar.State().CurrentNum, bar.GetMax(); n != int64(bouts) || all != bouts {
				t.Errorf("the bar is at %d of %d after %d bouts", n, all, bouts)
			}
			for pair := range slices.Chunk(further, 2) {
				if len(pair) < 2 || pair[0] == pair[1] {
					t.Errorf("not in turns: %q", further)
				}
			}
		})
	}
}

func TestTheNotesSayWhoTakesSeveralLocks(t *testing.T) {
	r := newReport(&site{}, nil, 1, briefly)
	r.describe([]scenario{crowdOf(8)}, contenders(site{}))
	var got []string
	for _, line := range r.notes("crowd-8", r.Results) {
		if strings.Contains(line, "locks where the others") {
			got = append(got, line)
		}
	}
	if want := []string{"multilock: takes 2 locks where the others take one"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestTheNotesSayWhoHadMoreRoundsAndWhoIsUnsteadyStill(t *testing.T) {
	r := &report{Run: settings{Rounds: 5}}
	entry := func(name string, rounds []figures) *result {
		return &result{contender: contender{name: name}, rounds: rounds}
	}
	few := entry("few", repeated(5, 1))
	for _, test := range []struct {
		others []*result
		want   []string
	}{
		{nil, nil},
		{[]*result{entry("a", repeated(7, 90)), entry("b", repeated(8, 50))}, []string{"more rounds, which max and sums are of, too: a 7, b 8"}},
		{[]*result{entry("a", repeated(10, 20, 200)), entry("b", repeated(20, 50))}, []string{": a 20, b 20", "at 75 %: a 20 to 200, b 50 to 50"}},
	} {
		got := r.notes("s", append([]*result{few}, test.others...))
		if !slices.EqualFunc(got, test.want, strings.HasSuffix) {
			t.Errorf("%q, not %q", got, test.want)
		}
	}
	if head := r.heading(); !strings.Contains(head, "5 rounds, or more where notes say so") {
		t.Errorf("%s", head)
	}
}

func TestAScenarioMayRunOnceAndForLonger(t *testing.T) {
	var windows []time.Duration
	note := func(_ context.Context, b bout) (sample, error) {
		windows = append(windows, b.window)
		return sample{figures: figures{"requests_per_lock": 2}}, nil
	}
	p := plan{&site{}, 3, briefly, []scenario{{name: "usual", run: note}, {name: "long", stretch: 5, once: true, run: note}}}
	r := newReport(p.at, nil, p.rounds, p.window)
	r.describe(p.scenarios, []contender{{name: "a"}})
	bar := progressbar.DefaultSilent(-1)
	if err := p.run(t.Context(), r, bar); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{briefly, 5 * briefly, briefly, briefly}; !slices.Equal(windows, want) {
		t.Errorf("%v, not %v", windows, want)
	}
	if n, all := bar.State().CurrentNum, bar.GetMax(); n != 6 || all != 6 { // 4, and one of their own each
		t.Errorf("the bar is at %d of %d", n, all)
	}
}

func TestAContenderThatFailsIsLeftOutUnlessItIsOurs(t *testing.T) {
	broken := errors.Join(errors.New("broken"), errors.New("twice"))
	tries := 0
	run := func(_ context.Context, b bout) (sample, error) {
		if b.contender.name == "breaks" {
			tries++
			return sample{}, broken
		}
		return sample{figures: figures{"cycles_per_s": 1}}, nil
	}
	for module, want := range map[string]error{"others": nil, ownModule: broken} {
		tries = 0
		r := &report{}
		s := scenario{name: "s", run: run}
		for _, c := range []contender{{name: "breaks", module: module}, {name: "works", module: "others"}} {
			r.Results = append(r.Results, &result{scenario: s, contender: c})
		}
		p := plan{&site{}, 3, briefly, []scenario{s}}
		err := p.run(t.Context(), r, progressbar.DefaultSilent(0))
		if !errors.Is(err, want) || tries != 1 {
			t.Errorf("%s: %v, tried %d times", module, err, tries)
		}
		if want == nil && (len(r.Results) != 1 || !slices.Equal(r.absences("s"), []string{"without breaks: it failed in this run: broken; twice"})) {
			t.Errorf("%v, without %q", r.Results, r.absences("s"))
		}
	}
}
