package main

import (
	"bytes"
	"image/color"
	"math"
	"slices"
	"strings"
	"testing"
)

func written(t *testing.T, r *report) string {
	t.Helper()
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// filled returns a report of some scenarios with invented figures.
func filled(some ...scenario) *report {
	at := &site{version: "7.0.15", origin: "started for this run"}
	r := newReport(at, []string{"--rounds", "3"}, 3, briefly, some, contenders)
	for i, x := range r.results {
		for round := range 3 {
			f := figures{"wait_max_us": float64(20 + round), "stuck": 0, "lost": float64(i % 2)}
			f["cycles_per_s"] = float64(1000*(i+1) + 100*round)
			if x.scenario.crowd {
				f["clients"], f["turn_share"] = float64(x.scenario.clients), .5
			}
			x.rounds = append(x.rounds, f)
		}
	}
	return r
}

// squeezed returns the page without the spaces that align the columns.
func squeezed(page string) string { return strings.Join(strings.Fields(page), " ") }

func TestThePageHasOneTableOfEachScenario(t *testing.T) {
	page := written(t, filled(slices.Concat([]scenario{theScenario(t, "hold1ms")}, crowds(8, 50))...))
	var headings []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			headings = append(headings, strings.TrimSpace(line))
		}
	}
	want := []string{"# Measurements", "## Contenders", "## Columns", "## hold1ms", "## crowd"}
	if !slices.Equal(headings, want) {
		t.Errorf("%q, not %q", headings, want)
	}
	for _, want := range []string{
		"```sh go run ./bench --rounds 3 ```", "Redis 7.0.15, started for this run",
		"- *redislock* (bsm/redislock v0",
		"1 lock, 1 ms of work. | | cycles/s | of rounds | max | lost |",
		"| rlock | 1100 | 1000-1200 | 22 us | 0 |",
		"| | clients | cycles/s | of rounds | max | had a turn | lost |",
		"| rlock | 8 | 8100 | 8000-8200 | 22 us | 0.50 | 3 |",
		"<!-- check: " + brief + " -->",
	} {
		if !strings.Contains(squeezed(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "| stuck") {
		t.Errorf("a column of zeros:\n%s", page)
	}
}

func TestTheTableOfOneRoundHasNoRange(t *testing.T) {
	r := filled(theScenario(t, "solo"))
	for _, x := range r.results {
		x.rounds = x.rounds[:1]
	}
	if page := written(t, r); strings.Contains(page, "of rounds |") {
		t.Errorf("%s", page)
	}
}

func TestADurationHasThreeDigits(t *testing.T) {
	for us, want := range map[float64]string{
		1.234: "1.2 us", 123.4: "123 us", 1234: "1.2 ms", 12345: "12 ms", 1.2345e6: "1.23 s",
	} {
		if got := readable(us); got != want {
			t.Errorf("%v is %s, not %s", us, got, want)
		}
	}
}

func TestThePlotShowsTheCrowdsWithoutABackground(t *testing.T) {
	var b bytes.Buffer
	if err := filled(crowds(8, 50, 1000)...).plot(&b); err != nil {
		t.Fatal(err)
	}
	svg := b.String()
	for _, want := range append(slices.Clone(crowding), "<svg", ">clients that had the lock after 120ms, %<",
		">the longest wait, s<", ">cycles a second<", ">1000<", "sans-serif") {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(strings.ToUpper(svg), "#FFFFFF") || strings.Contains(svg, "fill:#000000") {
		t.Error("white or black is in it")
	}
	if err := filled(theScenario(t, "solo")).plot(&b); err == nil {
		t.Error("a plot without a crowd")
	}
}

func luminance(c color.NRGBA) float64 {
	part := func(v uint8) float64 {
		x := float64(v) / 255
		if x <= .04045 {
			return x / 12.92
		}
		return math.Pow((x+.055)/1.055, 2.4)
	}
	return .2126*part(c.R) + .7152*part(c.G) + .0722*part(c.B)
}

func contrast(a, b color.NRGBA) float64 {
	x, y := luminance(a)+.05, luminance(b)+.05
	return max(x/y, y/x)
}

func TestEachContenderIsSeenOnLightAndOnDark(t *testing.T) {
	light, dark := color.NRGBA{0xff, 0xff, 0xff, 0xff}, color.NRGBA{0x0d, 0x11, 0x17, 0xff}
	if contrast(ink, light) < 4 || contrast(ink, dark) < 4 {
		t.Errorf("text: %.1f and %.1f", contrast(ink, light), contrast(ink, dark))
	}
	for _, name := range crowding {
		l, known := looks[name]
		if a, b := contrast(l.color, light), contrast(l.color, dark); !known || a < 2.2 || b < 2.2 {
			t.Errorf("%s: %.1f and %.1f", name, a, b)
		}
	}
}
