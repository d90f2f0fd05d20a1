package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth  = 14 * vg.Centimeter
	plotHeight = 8 * vg.Centimeter
)

// drawing is one plot of one scenario, or of a family of them.
type drawing struct {
	Name string
	SVG  template.HTML
}

// kind is one of plots.
type kind struct {
	name string
	draw func(*plot.Plot, []*result) (bool, error)
}

// drawings are the plots of a scenario, for those figures that it has. Those of a family come with its last scenario.
func (r *report) drawings(s described) (all []drawing, err error) {
	all, err = draw(s.Name, s.What, r.of(s.Name), kind{"throughput", throughput}, kind{"waits", waitCurves}, kind{"shares", shares})
	if kin := r.family(s.Name); err == nil && len(kin) > 0 {
		f := kin[0].scenario.family
		var over []drawing
		over, err = draw(f.name, f.what, kin, kind{"clients", overClients})
		all = append(all, over...)
	}
	return all, err
}

// family are the results of the scenarios of a family of which this one is the last; nil if there are no others.
func (r *report) family(scenario string) (kin []*result) {
	some := r.of(scenario)
	if len(some) == 0 || some[0].scenario.family == (family{}) {
		return nil
	}
	for _, x := range r.Results {
		if x.scenario.family == some[0].scenario.family {
			kin = append(kin, x)
		}
	}
	if kin[0].scenario.name == scenario || kin[len(kin)-1].scenario.name != scenario {
		return nil
	}
	return kin
}

func draw(name, what string, results []*result, kinds ...kind) (all []drawing, err error) {
	for _, kind := range kinds {
		p := plot.New()
		p.Title.Text = name + ": " + what
		p.Title.TextStyle.Font.Size = vg.Points(10)
		p.Title.Padding = vg.Points(6)
		some, err := kind.draw(p, results)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", name, kind.name, err)
		}
		if !some {
			continue
		}
		svg, err := asSVG(p)
		if err != nil {
			return nil, err
		}
		all = append(all, drawing{name + "-" + kind.name, svg})
	}
	return all, nil
}

// asSVG is the plot as an element to stand in a page.
func asSVG(p *plot.Plot) (template.HTML, error) {
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(vgdraw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	_, svg, ok := strings.Cut(b.String(), "<svg")
	if !ok {
		return "", fmt.Errorf("the plot is no SVG")
	}
	return template.HTML("<svg" + svg), nil
}

// colorOf is the same for a contender in all plots.
func colorOf(x *result) color.Color {
	i := slices.IndexFunc(contenders(site{}), func(c contender) bool { return c.name == x.contender.name })
	return plotutil.SoftColors[max(0, i)%len(plotutil.SoftColors)]
}

// bars draws one bar for each contender that has the figure.
func bars(p *plot.Plot, results []*result, name string, offset vg.Length, width vg.Length, fill func(*result) color.Color) (some bool, err error) {
	var names []string
	for i, x := range results {
		names = append(names, x.contender.name)
		v, ok := x.figures[name]
		if !ok {
			continue
		}
		some = true
		b, err := plotter.NewBarChart(plotter.Values{v}, width)
		if err != nil {
			return false, err
		}
		b.XMin, b.Offset, b.Color, b.LineStyle.Width = float64(i), offset, fill(x), 0
		p.Add(b)
	}
	p.NominalX(names...)
	p.X.Tick.Label.Rotation = .5
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = -1, -.5
	p.X.Min, p.X.Max, p.Y.Min = -.5, float64(len(results))-.5, 0
	return some, nil
}

func throughput(p *plot.Plot, results []*result) (bool, error) {
	p.Y.Label.Text = "cycles a second"
	return bars(p, results, "cycles_per_s", 0, vg.Points(18), colorOf)
}

func shares(p *plot.Plot, results []*result) (bool, error) {
	p.Y.Label.Text = "least and largest share of a goroutine"
	least := func(*result) color.Color { return color.Gray{90} }
	some, err := bars(p, results, "min_share", vg.Points(-6), vg.Points(10), least)
	if !some || err != nil {
		return false, err
	}
	return bars(p, results, "max_share", vg.Points(6), vg.Points(10), colorOf)
}

// timeTicks label microseconds readably.
type timeTicks struct{}

func (timeTicks) Ticks(least, most float64) []plot.Tick {
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
	p.X.Label.Text, p.Y.Label.Text = "wait", "part of the waits that is over"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, timeTicks{}
	p.Y.Min, p.Y.Max = 0, 1
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	for _, x := range results {
		if !x.waited || x.waits.N == 0 {
			continue
		}
		some = true
		var points plotter.XYs
		for i := range 200 {
			q := float64(i+1) / 200
			points = append(points, plotter.XY{X: max(.1, micros(x.waits.quantile(q))), Y: q})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return false, err
		}
		line.Color, line.Width = colorOf(x), vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(x.contender.name, line)
	}
	return some, nil
}

// overClients draws cycles a second over how many clients there are.
func overClients(p *plot.Plot, results []*result) (bool, error) {
	p.X.Label.Text, p.Y.Label.Text = "clients", "cycles a second"
	var ticks plot.ConstantTicks
	lines := map[string]plotter.XYs{}
	var order []*result
	for _, x := range results {
		n, v, has := float64(x.scenario.clients), 0.0, false
		if v, has = x.figures["cycles_per_s"]; !has {
			continue
		}
		name := x.contender.name
		if lines[name] == nil {
			order = append(order, x)
		}
		lines[name] = append(lines[name], plotter.XY{X: n, Y: v})
		if !slices.ContainsFunc(ticks, func(t plot.Tick) bool { return t.Value == n }) {
			ticks = append(ticks, plot.Tick{Value: n, Label: fmt.Sprint(n)})
		}
	}
	for i, x := range order {
		line, points, err := plotter.NewLinePoints(lines[x.contender.name])
		if err != nil {
			return false, err
		}
		line.Color, line.Width, points.Color, points.Shape = colorOf(x), vg.Points(1.5), colorOf(x), plotutil.Shape(i)
		p.Add(line, points)
		p.Legend.Add(x.contender.name, line, points)
	}
	p.X.Scale, p.X.Tick.Marker, p.Y.Min = plot.LogScale{}, ticks, 0
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	p.Legend.Left = true
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
	for _, t := range r.tables() {
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

// writePlots writes each plot to a file SCENARIO-KIND.svg or FAMILY-KIND.svg in the directory.
func (r *report) writePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, s := range r.Scenarios {
		all, err := r.drawings(s)
		if err != nil {
			return err
		}
		for _, d := range all {
			if err := os.WriteFile(filepath.Join(dir, d.Name+".svg"), []byte(d.SVG), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
