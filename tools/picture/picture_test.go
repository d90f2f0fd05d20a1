package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const repository = "../.."

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// published returns the picture of the documentation, and its lines.
func published(t *testing.T) ([]byte, []line) {
	t.Helper()
	svg, err := os.ReadFile(filepath.Join(repository, file))
	must(t, err)
	lines, err := linesOf(svg)
	must(t, err)
	return svg, lines
}

func TestThePictureShowsTheDemo(t *testing.T) {
	_, lines := published(t)
	const stale = file + " is not what the demo shows now; record it again with tools/dev picture"
	picture := storyOf(lines)
	var runs []story
	for range 3 { // up to 3 runs, because on a slow machine one run may not show all lines
		r, err := record(t.Context(), repository, "--for", "1s")
		must(t, err)
		run := storyOf(r.lines())
		if err := picture.differs(run); err != nil {
			t.Fatalf("%s: %v\n%s", stale, err, r)
		}
		runs = append(runs, run)
		if len(picture.missing(runs...)) == 0 {
			return
		}
	}
	t.Errorf("%s: %d runs did not show %q", stale, len(runs), picture.missing(runs...))
}

func TestThePictureIsWhatItsLinesAreDrawnAs(t *testing.T) {
	svg, lines := published(t)
	r := recording{}
	for _, l := range lines {
		r = append(r, moment{line: l})
	}
	// The comparison leaves out the times, because lines do not have any.
	times := regexp.MustCompile(`(?m)^@(keyframes|media \(prefers-reduced-motion).*$`)
	if got := r.svg(); times.ReplaceAllString(string(got), "") != times.ReplaceAllString(string(svg), "") {
		t.Errorf("%s was edited, or drawn by another version of this tool: run tools/dev picture", file)
	}
	if len(svg) > 60_000 {
		t.Errorf("%s has %d bytes", file, len(svg))
	}
}

func TestEachChangeOfTextOrStyleOrOrderIsNoticed(t *testing.T) {
	_, lines := published(t)
	picture := storyOf(lines)
	if err := picture.differs(picture); err != nil {
		t.Fatal(err)
	}
	once := map[string]bool{} // texts that must occur exactly once
	for _, b := range picture.beats {
		once[b.text] = b.times == 1
	}
	changes := 0
	check := func(what string, changed []line) {
		t.Helper()
		changes++
		if picture.differs(storyOf(changed)) == nil {
			t.Errorf("%s is not noticed", what)
		}
	}
	for i, l := range lines {
		for j, s := range l {
			if stripped(s.text) == "#" || clock.MatchString(s.text) {
				continue
			}
			changed := slices.Clone(lines)
			changed[i] = slices.Clone(l)
			changed[i][j].text = s.text + "!"
			check(fmt.Sprintf("%q in place of %q", changed[i][j].text, s.text), changed)
			changed[i] = slices.Clone(l)
			changed[i][j].style = "other"
			check(fmt.Sprintf("another style of %q", s.text), changed)
		}
		if beats := storyOf([]line{l}).beats; !once[beats[0].text] {
			continue
		}
		check(fmt.Sprintf("that %q is missing", l), slices.Delete(slices.Clone(lines), i, i+1))
		check(fmt.Sprintf("that %q comes twice", l), slices.Insert(slices.Clone(lines), i, l))
		if i+1 < len(lines) {
			changed := slices.Clone(lines)
			changed[i], changed[i+1] = changed[i+1], changed[i]
			check(fmt.Sprintf("that %q comes later", l), changed)
		}
	}
	if changes < 200 {
		t.Errorf("only %d changes were tried", changes)
	}
}

func TestRunsThatDifferInTimesAndCountsAreTheSame(t *testing.T) {
	picture := storyOf(terminal(t, `lockline demo
Redis: at 127.0.0.1:33589. Lease: 2s.

<1>time     P1      P2      counter<0>
<2> 9.11 s  <0><33>wait    <0><32>HOLD    <0>9
<2> 9.35 s  <0><32>HOLD    <0><31>dead    <0>15
<2> 9.40 s  <0><1>-- process 2: SIGKILL to pid 7<0>
<2> 9.90 s  <0><1>-- no process can enter: 0.5 s since the kill<0>
<2>10.40 s  <0><1>-- no process can enter: 1.0 s since the kill<0>
<2>10.60 s  <0><32>HOLD    <0><31>dead    <0>16
<2>10.70 s  <0><32>HOLD    <0><31>dead    <0>17

  <32>✓<0> counter    17 in the file (at most 5s allowed)`))
	for name, test := range map[string]struct {
		run     string
		same    bool
		missing []string
	}{
		"other times, counts and ids": {`lockline demo
Redis: at 127.0.0.1:5. Lease: 2s.

<1>time     P1      P2      counter<0>
<2> 1.11 s  <0><32>HOLD    <0><33>wait    <0>10
<2> 1.40 s  <0><1>-- process 1: SIGKILL to pid 7000<0>
<2> 1.90 s  <0><1>-- no process can enter: 0.7 s since the kill<0>
<2> 2.90 s  <0><31>dead    <0><32>HOLD    <0>1000

  <32>✓<0> counter    9 in the file (at most 5s allowed)`, true, nil},
		"none of what is sampled": {`lockline demo
Redis: at 127.0.0.1:5. Lease: 2s.

<1>time     P1      P2      counter<0>
<2> 1.40 s  <0><1>-- process 1: SIGKILL to pid 7000<0>

  <32>✓<0> counter    9 in the file (at most 5s allowed)`, true,
			[]string{"#", "(a row)", "4 cells", "<faint># s</faint>",
				"<faint># s</faint><bold>  -- no process can enter:# s since the kill</bold>",
				"<green>HOLD</green>", "<red>dead</red>", "<yellow>wait</yellow>"}},
		"another lease": {`lockline demo
Redis: at 127.0.0.1:5. Lease: 3s.

<1>time     P1      P2      counter<0>
<2> 1.40 s  <0><1>-- process 1: SIGKILL to pid 7000<0>

  <32>✓<0> counter    9 in the file (at most 5s allowed)`, false, nil},
		"another bound": {`lockline demo
Redis: at 127.0.0.1:5. Lease: 2s.

<1>time     P1      P2      counter<0>
<2> 1.40 s  <0><1>-- process 1: SIGKILL to pid 7000<0>

  <32>✓<0> counter    9 in the file (at most 6s allowed)`, false, nil},
	} {
		run := storyOf(terminal(t, test.run))
		if err := picture.differs(run); (err == nil) != test.same {
			t.Errorf("%s: %v", name, err)
		}
		if missing := picture.missing(run); test.same && !slices.Equal(missing, test.missing) {
			t.Errorf("%s: missing %q", name, missing)
		}
	}
}

// terminal parses lines. In text, a number such as <1> stands for the escape sequence with this number.
func terminal(t *testing.T, text string) (all []line) {
	t.Helper()
	text = regexp.MustCompile(`<(\d+)>`).ReplaceAllString(text, "\x1b[${1}m")
	for l := range strings.SplitSeq(text, "\n") {
		parsed, err := parse(l)
		must(t, err)
		all = append(all, parsed)
	}
	return all
}

func TestTheTerminalsStylesAreRead(t *testing.T) {
	l, err := parse("\x1b[2m 0.11 s  \x1b[0mHOLD×2  \x1b[31mdead\x1b[0m   17 in  it")
	must(t, err)
	want := line{{1, "faint", "0.11 s"}, {9, "", "HOLD×2"}, {17, "red", "dead"}, {24, "", "17 in"},
		{31, "", "it"}}
	if !reflect.DeepEqual(l, want) {
		t.Errorf("got %+v", l)
	}
	if got := l.String(); got != " 0.11 s  HOLD×2  dead   17 in  it" {
		t.Errorf("got %q", got)
	}
	if _, err := parse("\x1b[35mx"); err == nil {
		t.Error("a style without a color is accepted")
	}
}

func TestOnlyTextOnPaperIsDrawnAndAllOfIt(t *testing.T) {
	r := recording{{0, line{{0, "", "$ x"}}}, {time.Second, nil},
		{time.Second, line{{2, "bold", `<a> & "b"`}, {20, "green", "✓"}}}}
	svg := r.svg()
	lines, err := linesOf(svg)
	must(t, err)
	if !reflect.DeepEqual(lines, r.lines()) {
		t.Errorf("drawn as %+v", lines)
	}
	width := 0
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		must(t, err)
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !slices.Contains([]string{"svg", "title", "style", "rect", "text", "g"}, e.Name.Local) {
			t.Errorf("there is an element %s", e.Name.Local)
		}
		is := map[string]int{}
		for _, a := range e.Attr {
			is[a.Name.Local], _ = strconv.Atoi(a.Value)
		}
		switch e.Name.Local {
		case "svg":
			width = is["width"]
		case "text":
			if is["x"]+is["textLength"] > width-padding {
				t.Errorf("text at %d is %d wide, the picture %d", is["x"], is["textLength"], width)
			}
		}
	}
	for _, loads := range []string{"url(", "@import", "href"} {
		if strings.Contains(string(svg), loads) {
			t.Errorf("the picture has %q", loads)
		}
	}
}

func TestLinesAppearAtTheirTimesAndAllAreThereWithoutAnimation(t *testing.T) {
	l := line{{0, "", "x"}}
	r := recording{{0, l}, {5 * time.Second, l}, {5 * time.Second, l}, {10 * time.Second, l}} // and a pause
	svg := string(r.svg())
	const height = 4*cellHeight + 2*padding
	var want strings.Builder
	for percent, lines := range map[string]int{"0.00": 1, "25.00": 3} {
		fmt.Fprintf(&want, "%s%%{transform:translateY(%dpx)}", percent, padding+lines*cellHeight-height)
		if !strings.Contains(svg, want.String()) {
			t.Errorf("no %s in\n%s", &want, svg)
		}
		want.Reset()
	}
	if !strings.Contains(svg, "50.00%{transform:translateY(0px)}to{transform:none}}") {
		t.Errorf("the cover stays:\n%s", svg)
	}
	const width = cellWidth + 2*padding
	for what, rect := range map[string]string{
		"paper": fmt.Sprintf(`<rect class="paper" width="%d" height="%d"`, width, height),
		"cover": fmt.Sprintf(`<g class="cover"><rect class="paper" x="8" y="%d" width="%d" height="%[1]d"/>`,
			height, width-16),
		"cursor": fmt.Sprintf(`<rect class="cursor" x="%d" y="%d" width="%d" height="15"/></g>`,
			padding, height, cellWidth),
		"edge": fmt.Sprintf(`<rect class="edge" x=".5" y=".5" width="%d" height="%d"`, width-1, height-1),
	} {
		if !strings.Contains(svg, rect) {
			t.Errorf("%s is not %s in\n%s", what, rect, svg)
		}
	}
	if strings.Count(svg, "animation") != 1 || !strings.Contains(svg,
		"@media (prefers-reduced-motion:no-preference){.cover{animation:appear 20.0s ") {
		t.Errorf("moves without being welcome:\n%s", svg)
	}
}

func TestTextHasContrastInLightAndDark(t *testing.T) {
	for name, th := range map[string]theme{"light": light, "dark": dark} {
		for _, s := range styleOf {
			if c := contrast(th.paper, th.ink[s]); c < 4.5 {
				t.Errorf("%s, %q: contrast %.1f", name, s, c)
			}
		}
	}
}

// contrast returns the contrast of two colors, from 1 to 21, by the Web Content Accessibility Guidelines.
func contrast(one, other string) float64 {
	luminance := func(hex string) (sum float64) {
		var c [3]uint8
		if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &c[0], &c[1], &c[2]); err != nil {
			panic(err)
		}
		for i, weight := range []float64{.2126, .7152, .0722} {
			v := float64(c[i]) / 255
			if v <= .04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+.055)/1.055, 2.4)
			}
			sum += weight * v
		}
		return sum
	}
	l := []float64{luminance(one), luminance(other)}
	slices.Sort(l)
	return (l[1] + .05) / (l[0] + .05)
}
