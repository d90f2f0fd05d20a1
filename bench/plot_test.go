package main

import (
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot/vg"
)

// drawn are all plots of a report with such speeds of all contenders, by name.
func drawn(t *testing.T, speeds func(i int) float64, some ...scenario) map[string]string {
	t.Helper()
	r := newReport(&site{}, nil, 1, briefly)
	all := slices.DeleteFunc(contenders(site{}), func(c contender) bool {
		return c.lacks[somePermits] == "" || c.lacks[aLatch] == "" // no scenario has them beside the others
	})
	for i := range all {
		all[i].lacks = nil
	}
	r.describe(some, all)
	for i, x := range r.Results {
		x.figures = figures{"cycles_per_s": speeds(i), "min_share": .5, "max_share": 1.5}
		for k := range 50 {
			x.waits.add(time.Duration(k+i+1) * 20 * time.Microsecond)
		}
		x.waited = true
	}
	plots := map[string]string{}
	for _, s := range r.Scenarios {
		drawings, err := r.drawings(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range drawings {
			plots[d.Name] = string(d.SVG)
		}
	}
	return plots
}

var (
	viewBox = regexp.MustCompile(`viewBox="0 0 ([\d.]+) ([\d.]+)"`)
	texts   = regexp.MustCompile(`(?s)(<g transform="rotate[^>]*>\s*)?<text textLength="[\d.]+" lengthAdjust="spacingAndGlyphs" x="([-\d.e+]+)" y="([-\d.e+]+)" transform="scale\(1, -1\)"\s*style="([^"]*)">([^<]*)</text>`)
)

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestTextInPlotsIsSansSerifInInkAndWhole(t *testing.T) {
	long := theScenario(t, "market-1x1-coarse") // has the longest title
	plots := drawn(t, func(i int) float64 { return math.Pow(10, float64(i%6)) }, theScenario(t, "hot8"), long, crowdOf(8), crowdOf(1000))
	if len(plots) != 4*len(kindsOfScenario)+1 {
		t.Fatalf("%d plots", len(plots))
	}
	sty := plain().Title.TextStyle
	for name, svg := range plots {
		box := viewBox.FindStringSubmatch(svg)
		if box == nil {
			t.Fatalf("%s: %.200s", name, svg)
		}
		width, height := number(t, box[1]), number(t, box[2])
		all := texts.FindAllStringSubmatch(svg, -1)
		if len(all) != strings.Count(svg, "<text") || len(all) < 5 {
			t.Errorf("%s: %d texts of %d were read", name, len(all), strings.Count(svg, "<text"))
		}
		for _, m := range all {
			size, _, _ := strings.Cut(m[4][strings.Index(m[4], "font-size:")+len("font-size:"):], "px")
			sty.Font.Size = vg.Points(number(t, size))
			long := sty.Width(m[5]).Points()
			if !strings.Contains(m[4], "sans-serif") || !strings.Contains(m[4], "fill:#797979") {
				t.Errorf("%s: %q is %s", name, m[5], m[4])
			}
			x, y := number(t, m[2]), -number(t, m[3]) // upwards
			if m[1] != "" {                           // the title of the vertical axis, turned
				x, y = y, x
				if mid := math.Abs(number(t, m[2])); mid < 0 || mid+long > height {
					t.Errorf("%s: %q of %.0f begins at %.0f of %.0f", name, m[5], long, mid, height)
				}
				continue
			}
			if x < 0 || x+long > width || y < 0 || y+sty.Font.Size.Points() > height {
				t.Errorf("%s: %q of %.0f x %v stands at %.0f, %.0f in %.0f x %.0f", name, m[5], long, sty.Font.Size, x, y, width, height)
			}
		}
	}
}

func TestAxesAreLogarithmicWhereValuesSpanADecade(t *testing.T) {
	for name, test := range map[string]struct {
		speeds func(i int) float64
		log    bool
	}{
		"decades": {func(i int) float64 { return math.Pow(10, float64(i%6)) }, true},
		"near":    {func(i int) float64 { return 100 + float64(i) }, false},
		"none":    {func(i int) float64 { return 0 }, false},
		"one":     {func(i int) float64 { return float64(1000 * (i % 2)) }, false},
		"idle":    {func(i int) float64 { return float64(i%3) * 1000 * math.Pow(10, float64(i%2)) }, true},
	} {
		plots := drawn(t, test.speeds, crowdOf(8), crowdOf(50))
		for _, plot := range []string{"crowd-8-throughput", "crowd-clients"} {
			if got := strings.Contains(plots[plot], ">cycles a second (logarithmic)</text>"); got != test.log {
				t.Errorf("%s, %s: logarithmic %v", name, plot, got)
			}
		}
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

func TestEachContenderHasAColorOfItsOwnOnLightAndOnDark(t *testing.T) {
	light, dark := rgb(0xffffff), rgb(0x0d1117)
	if contrast(ink, light) < 4 || contrast(ink, dark) < 4 {
		t.Errorf("text: %.1f and %.1f", contrast(ink, light), contrast(ink, dark))
	}
	seen := map[color.NRGBA]string{}
	styles := map[string]string{}
	for _, c := range contenders(site{}) {
		l, known := looks[c.name]
		if other := seen[l.color]; !known || other != "" {
			t.Errorf("%s is drawn as %q", c.name, other)
		}
		seen[l.color] = c.name
		if a, b := contrast(l.color, light), contrast(l.color, dark); a < 2.2 || b < 2.2 {
			t.Errorf("%s: %.1f and %.1f", c.name, a, b)
		}
		if style := fmt.Sprintf("%v %#v", l.dashes, l.shape); c.ours() && len(l.dashes) > 0 || styles[style] != "" {
			t.Errorf("%s has the dashes and shape of %q", c.name, styles[style])
		} else {
			styles[style] = c.name
		}
		if thick := c.line().Width > vg.Points(2); thick != c.ours() {
			t.Errorf("%s: width %v", c.name, c.line().Width)
		}
	}
}

func TestNoPlotHasABackground(t *testing.T) {
	for name, svg := range drawn(t, func(i int) float64 { return float64(i + 1) }, theScenario(t, "hot8")) {
		if strings.Contains(strings.ToUpper(svg), "#FFFFFF") || strings.Contains(svg, "fill:#000000") {
			t.Errorf("%s has white or black in it", name)
		}
	}
}

func TestTheNamesOfPlotsAreKnown(t *testing.T) {
	var names []string
	for name := range drawn(t, func(i int) float64 { return float64(i + 1) }, theScenario(t, "solo"), crowdOf(8), crowdOf(50)) {
		names = append(names, name)
	}
	var want []string
	for _, n := range drawable([]scenario{theScenario(t, "solo"), crowdOf(8), crowdOf(50)}) {
		want = append(want, string(n))
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("%q, not %q", names, want)
	}
}

func TestLargeNumbersAreGrouped(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 391327: "391,327", 1234567: "1,234,567", -100: "-100"} {
		if got := grouped(v); got != want {
			t.Errorf("%v is %s, not %s", v, got, want)
		}
	}
}
