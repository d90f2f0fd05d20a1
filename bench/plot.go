package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth  = 16 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
	rowHeight  = .6 * vg.Centimeter // of one of several contenders below each other
	margin     = 6
)

// drawing is one plot of one scenario, or of a family of them.
type drawing struct {
	Name string
	SVG  template.HTML
}

// kind is one of plots.
type kind struct {
	name string
	rows bool // one for each contender
	draw func(*plot.Plot, []*result) (bool, error)
}

var (
	kindsOfScenario = []kind{{"throughput", true, throughput}, {"waits", false, waitCurves}, {"shares", true, shares}}
	kindsOfFamily   = []kind{{"clients", false, overClients}}
)

// plotName is that of a plot, for --only-plots.
type plotName string

func (n plotName) called() string { return string(n) }

// drawable are the names of all plots that there could be of some scenarios.
func drawable(some []scenario) (all []plotName) {
	add := func(name string, kinds []kind) {
		for _, k := range kinds {
			all = append(all, plotName(name+"-"+k.name))
		}
	}
	for _, s := range some {
		add(s.name, kindsOfScenario)
		if s.family != (family{}) && !slices.Contains(all, plotName(s.family.name+"-"+kindsOfFamily[0].name)) {
			add(s.family.name, kindsOfFamily)
		}
	}
	return all
}

// drawings are the plots of a scenario, for those figures that it has. Those of a family come with its last scenario.
func (r *report) drawings(s described) (all []drawing, err error) {
	all, err = draw(s.Name, s.What, r.of(s.Name), kindsOfScenario...)
	if kin := r.family(s.Name); err == nil && len(kin) > 0 {
		f := kin[0].scenario.family
		var over []drawing
		over, err = draw(f.name, f.what, kin, kindsOfFamily...)
		all = append(all, over...)
	}
	return all, err
}

// family are the results of the scenarios of a family of which this one is the last; nil if there are no others.
func (r *report) family(scenario string) []*result {
	kin := r.kin(scenario)
	if len(kin) == 0 || kin[len(kin)-1].scenario.name != scenario {
		return nil
	}
	return kin
}

func draw(name, what string, results []*result, kinds ...kind) (all []drawing, err error) {
	for _, kind := range kinds {
		p := plain()
		some, err := kind.draw(p, results)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", name, kind.name, err)
		}
		if !some {
			continue
		}
		height := vg.Length(plotHeight)
		if kind.rows {
			height = vg.Length(len(results)+3) * rowHeight
		}
		svg, err := asSVG(p, name+": "+what, height)
		if err != nil {
			return nil, err
		}
		all = append(all, drawing{name + "-" + kind.name, svg})
	}
	return all, nil
}

// plain is a plot without background, in ink.
func plain() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, s := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		sansSerif(s)
	}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = ink, ink
		a.Label.Padding = vg.Points(4)
	}
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Title.TextStyle.XAlign = vgdraw.XLeft
	p.Legend.Top, p.Legend.Left, p.Legend.ThumbnailWidth, p.Legend.Padding = true, true, vg.Points(28), vg.Points(4)
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = grid, grid
	p.Add(lines)
	return p
}

func sansSerif(s *text.Style) {
	s.Font.Variant, s.Font.Size, s.Color = "Sans", vg.Points(9), ink
}

// asSVG is the plot as an element to stand in a page, below its title and with its legend beside it.
func asSVG(p *plot.Plot, title string, height vg.Length) (template.HTML, error) {
	sty := p.Title.TextStyle
	title = wrapped(sty, title, plotWidth-2*margin)
	above := sty.Rectangle(title).Size().Y + vg.Points(8)
	canvas := vgsvg.New(plotWidth, height+above)
	c := vgdraw.Crop(vgdraw.New(canvas), margin, -margin, margin, -margin)
	c.FillText(sty, vg.Point{X: c.Min.X, Y: c.Max.Y}, title)
	c = vgdraw.Crop(c, 0, 0, 0, -above)

	legend := p.Legend
	p.Legend = plot.NewLegend()
	if box := legend.Rectangle(c).Size(); box.Y > 0 {
		beside := box.X + vg.Points(6)
		legend.Draw(vgdraw.Crop(c, c.Max.X-c.Min.X-beside, 0, 0, 0))
		c = vgdraw.Crop(c, 0, -beside-vg.Points(8), 0, 0)
	}
	p.Draw(c)

	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	_, svg, ok := strings.Cut(b.String(), "<svg")
	if !ok {
		return "", fmt.Errorf("the plot is no SVG")
	}
	return template.HTML("<svg" + asWide(sty, svg)), nil
}

var textElement = regexp.MustCompile(`<text (x=[^>]*)font-family:Liberation Sans;([^>]*font-size:([\d.]+)px[^>]*)>([^<]*)<`)

// asWide has text as wide as it was laid out, whatever font the reader has in place of ours: none is cut off.
func asWide(sty text.Style, svg string) string {
	return textElement.ReplaceAllStringFunc(svg, func(element string) string {
		m := textElement.FindStringSubmatch(element)
		size, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return element
		}
		sty.Font.Size = vg.Points(size)
		width := sty.Width(html.UnescapeString(m[4])).Points()
		return fmt.Sprintf(`<text textLength="%.1f" lengthAdjust="spacingAndGlyphs" %sfont-family:Liberation Sans,Arial,Helvetica,sans-serif;%s>%s<`, width, m[1], m[2], m[4])
	})
}

// wrapped has no line that is wider.
func wrapped(sty text.Style, s string, width vg.Length) string {
	var lines []string
	for word := range strings.FieldsSeq(s) {
		if n := len(lines); n > 0 && sty.Width(lines[n-1]+" "+word) <= width {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return strings.Join(lines, "\n")
}

// byDecades makes an axis logarithmic where values span a decade or more, and else begins it at 0.
// It returns where to draw a value.
func byDecades(a *plot.Axis, values []float64) func(float64) float64 {
	positive := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
	if len(positive) == 0 || slices.Max(positive) < 10*slices.Min(positive) {
		a.Min, a.Tick.Marker = 0, counts{plot.DefaultTicks{}}
		return func(v float64) float64 { return v }
	}
	a.Min = math.Pow10(int(math.Floor(math.Log10(slices.Min(positive)))))
	a.Max = math.Pow10(int(math.Ceil(math.Log10(slices.Max(positive)))))
	a.Scale, a.Tick.Marker = plot.LogScale{}, counts{plot.LogTicks{}}
	a.Label.Text += " (logarithmic)"
	return func(v float64) float64 { return max(v, a.Min) }
}

// counts label ticks as 100,000 and not as 1e+05.
type counts struct{ plot.Ticker }

func (c counts) Ticks(least, most float64) []plot.Tick {
	ticks := c.Ticker.Ticks(least, most)
	for i, t := range ticks {
		if t.Label != "" && t.Value == math.Trunc(t.Value) {
			ticks[i].Label = grouped(t.Value)
		}
	}
	return ticks
}

// grouped has a comma before each three digits.
func grouped(v float64) string {
	s := whole(v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rows names a row for each contender, the first one on top, and returns where it is.
func rows(p *plot.Plot, results []*result) func(i int) float64 {
	var names []string
	for _, x := range slices.Backward(results) {
		names = append(names, x.contender.name)
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -.5, float64(len(results))-.5
	return func(i int) float64 { return float64(len(results) - 1 - i) }
}

// label writes beside a point.
func label(p *plot.Plot, at plotter.XY, s string) error {
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{at}, Labels: []string{s}})
	if err != nil {
		return err
	}
	sansSerif(&l.TextStyle[0])
	l.TextStyle[0].YAlign, l.Offset = vgdraw.YCenter, vg.Point{X: vg.Points(8), Y: vg.Points(1)}
	p.Add(l)
	return nil
}

func throughput(p *plot.Plot, results []*result) (some bool, err error) {
	const name = "cycles_per_s"
	p.X.Label.Text = "cycles a second"
	var values []float64
	for _, x := range results {
		if v, ok := x.figures[name]; ok {
			values = append(values, v)
		}
	}
	at, row := byDecades(&p.X, values), rows(p, results)
	for i, x := range results {
		v, ok := x.figures[name]
		if !ok {
			continue
		}
		dot := plotter.XY{X: at(v), Y: row(i)}
		points, err := plotter.NewScatter(plotter.XYs{dot})
		if err != nil {
			return false, err
		}
		points.GlyphStyle = x.contender.glyph()
		p.Add(points)
		if err := label(p, dot, grouped(v)); err != nil {
			return false, err
		}
	}
	return len(values) > 0, nil
}

func shares(p *plot.Plot, results []*result) (some bool, err error) {
	p.X.Label.Text = "cycles of a goroutine, from the fewest to the most, relative to their mean"
	row := rows(p, results)
	for i, x := range results {
		least, ok := x.figures["min_share"]
		if !ok {
			continue
		}
		some = true
		most := x.figures["max_share"]
		line, points, err := plotter.NewLinePoints(plotter.XYs{{X: least, Y: row(i)}, {X: most, Y: row(i)}})
		if err != nil {
			return false, err
		}
		line.LineStyle, points.GlyphStyle = x.contender.line(), x.contender.glyph()
		line.Dashes = nil
		p.Add(line, points)
		if err := label(p, plotter.XY{X: most, Y: row(i)}, ratio(least)+" to "+ratio(most)); err != nil {
			return false, err
		}
	}
	p.X.Min = 0
	return some, nil
}

// durations label microseconds readably.
type durations struct{}

func (durations) Ticks(least, most float64) []plot.Tick {
	ticks := plot.LogTicks{}.Ticks(least, most)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = time.Duration(t.Value * float64(time.Microsecond)).String()
		}
	}
	return ticks
}

// waitCurves draws what part of the waits is over after how long.
func waitCurves(p *plot.Plot, results []*result) (some bool, err error) {
	p.X.Label.Text, p.Y.Label.Text = "wait (logarithmic)", "fraction of waits finished"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, durations{}
	p.Y.Min, p.Y.Max = 0, 1
	for _, x := range results {
		if !x.waited || x.waits.N == 0 {
			continue
		}
		some = true
		var points plotter.XYs
		for i := range 200 {
			q := float64(i+1) / 200
			at := max(.1, micros(x.waits.quantile(q)))
			if n := len(points); n > 1 && points[n-1].X == at && points[n-2].X == at {
				points[n-1].Y = q
			} else {
				points = append(points, plotter.XY{X: at, Y: q})
			}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return false, err
		}
		line.LineStyle = x.contender.line()
		p.Add(line)
		p.Legend.Add(x.contender.name, line)
	}
	return some, nil
}

// overClients draws cycles a second over how many clients there are.
func overClients(p *plot.Plot, results []*result) (bool, error) {
	p.X.Label.Text, p.Y.Label.Text = "clients (logarithmic)", "cycles a second"
	var ticks plot.ConstantTicks
	var values []float64
	lines := map[string]plotter.XYs{}
	var order []*result
	for _, x := range results {
		n := float64(x.scenario.clients)
		v, has := x.figures["cycles_per_s"]
		if !has {
			continue
		}
		name := x.contender.name
		if lines[name] == nil {
			order = append(order, x)
		}
		lines[name] = append(lines[name], plotter.XY{X: n, Y: v})
		values = append(values, v)
		if !slices.ContainsFunc(ticks, func(t plot.Tick) bool { return t.Value == n }) {
			ticks = append(ticks, plot.Tick{Value: n, Label: grouped(n)})
		}
	}
	at := byDecades(&p.Y, values)
	for _, x := range order {
		xys := lines[x.contender.name]
		for i := range xys {
			xys[i].Y = at(xys[i].Y)
		}
		line, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return false, err
		}
		line.LineStyle, points.GlyphStyle = x.contender.line(), x.contender.glyph()
		p.Add(line, points)
		p.Legend.Add(x.contender.name, line, points)
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks
	return len(order) > 0, nil
}

//go:embed page.html
var pageBody string

var page = template.Must(template.New("page").Parse(pageBody))

// writeHTML writes one page that needs nothing else.
func (r *report) writeHTML(w io.Writer) error {
	type section struct {
		table
		Drawings []drawing
	}
	var sections []section
	for _, t := range r.tables(false) {
		d, err := r.drawings(described{Name: t.Name, What: t.What})
		if err != nil {
			return err
		}
		sections = append(sections, section{t, d})
	}
	return page.Execute(w, map[string]any{
		"Heading": r.heading(), "Embedded": r.Machine.Embedded, "Contenders": r.Contenders, "Sections": sections, "Legend": legend,
	})
}

// writePlots writes each plot that has one of the names to a file SCENARIO-KIND.svg or FAMILY-KIND.svg in the directory.
func (r *report) writePlots(dir string, names []plotName) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, s := range r.Scenarios {
		all, err := r.drawings(s)
		if err != nil {
			return err
		}
		for _, d := range all {
			if !slices.Contains(names, plotName(d.Name)) {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, d.Name+".svg"), []byte(d.SVG), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
