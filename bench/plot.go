package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The plot has no background, because pages can be white or nearly black. The color ink has about the same
// contrast on both.
var (
	ink  = color.NRGBA{0x79, 0x79, 0x79, 0xff}
	grid = color.NRGBA{0x79, 0x79, 0x79, 0x40}
)

// A look has the color, dashes and dots with which the line of a contender is drawn.
type look struct {
	color  color.NRGBA
	dashes []vg.Length
	shape  draw.GlyphDrawer
}

// looks has a look for each contender in the plot. The colors are from the palette of Okabe and Ito, or
// similar. If color-blind readers may confuse two colors, their dashes and shapes differ.
var looks = map[string]look{
	"rlock":           {color.NRGBA{0xd5, 0x5e, 0x00, 0xff}, nil, draw.CircleGlyph{}},
	"fairlock":        {color.NRGBA{0x00, 0x72, 0xb2, 0xff}, nil, draw.BoxGlyph{}},
	"rueidislock":     {color.NRGBA{0x00, 0x9e, 0x73, 0xff}, []vg.Length{1, 2}, draw.PyramidGlyph{}},
	"redislock-exp":   {color.NRGBA{0x7b, 0x68, 0xc8, 0xff}, []vg.Length{3, 2}, draw.RingGlyph{}},
	"redsync-default": {color.NRGBA{0x8c, 0x6d, 0x1f, 0xff}, []vg.Length{4, 2, 1, 2}, draw.SquareGlyph{}},
}

// A panel is one diagram of the plot. It shows how a metric depends on the number of clients.
type panel struct {
	title string
	name  string  // name of the metric
	unit  float64 // value of the metric that is shown as 1 on the axis
}

// plot writes an SVG with the figures of the crowds.
func (r *report) plot(w io.Writer) error {
	all := r.named("crowd")
	if len(all) == 0 {
		return errors.New("--plot: there is no crowd in this run")
	}
	var row []*plot.Plot
	for _, p := range []panel{
		{fmt.Sprintf("clients that had the lock after %v, %%", r.measured(all[0].scenario)),
			"turn_share", .01},
		{"the longest wait, s", "wait_max_us", 1e6},
		{"cycles a second", "cycles_per_s", 1},
	} {
		fig := p.axes(all)
		if err := p.lines(fig, all); err != nil {
			return err
		}
		row = append(row, fig)
	}
	legend := row[0].Legend // the legends of all panels are the same
	for _, fig := range row {
		fig.Legend = plot.NewLegend()
	}
	return svg(w, row, legend)
}

func (p panel) axes(all []*result) *plot.Plot {
	fig := plot.New()
	fig.BackgroundColor = nil
	fig.Title.Text = p.title
	for _, s := range []*text.Style{&fig.Title.TextStyle, &fig.Legend.TextStyle,
		&fig.X.Label.TextStyle, &fig.X.Tick.Label, &fig.Y.Tick.Label} {
		s.Font.Variant, s.Font.Size, s.Color = "Sans", vg.Points(9), ink
	}
	fig.Legend.Top, fig.Legend.Left = true, true
	fig.Legend.ThumbnailWidth, fig.Legend.Padding = vg.Points(28), vg.Points(4)
	for _, a := range []*plot.Axis{&fig.X, &fig.Y} {
		a.Color, a.Tick.Color = ink, ink
	}
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = grid, grid
	fig.Add(lines)
	fig.X.Label.Text = "clients"
	fig.X.Scale = plot.LogScale{}
	var ticks plot.ConstantTicks
	for _, x := range all {
		n := x.scenario.clients
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: strconv.Itoa(n)})
	}
	fig.X.Tick.Marker = slices.CompactFunc(ticks, func(a, b plot.Tick) bool { return a.Value == b.Value })
	return fig
}

// lines adds a line for each contender.
func (p panel) lines(fig *plot.Plot, all []*result) error {
	for _, name := range crowding {
		var points plotter.XYs
		for _, x := range all {
			if values := x.values(p.name); x.contender.name == name && len(values) > 0 {
				points = append(points, plotter.XY{X: float64(x.scenario.clients),
					Y: medianOf(values) / p.unit})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		l := looks[name]
		line.LineStyle = draw.LineStyle{Color: l.color, Width: vg.Points(1.6), Dashes: l.dashes}
		dots.GlyphStyle = draw.GlyphStyle{Color: l.color, Radius: vg.Points(3.5), Shape: l.shape}
		fig.Add(line, dots)
		fig.Legend.Add(name, line, dots)
	}
	fig.Y.Min = 0
	return nil
}

// svg writes the panels beside each other, with the legend on their right.
func svg(w io.Writer, row []*plot.Plot, legend plot.Legend) error {
	const margin = 6
	canvas := vgsvg.New(26*vg.Centimeter, 7*vg.Centimeter)
	c := draw.Crop(draw.New(canvas), margin, -margin, margin, -margin)
	beside := legend.Rectangle(c).Size().X + vg.Points(10)
	legend.Draw(draw.Crop(c, c.Max.X-c.Min.X-beside+vg.Points(10), 0, 0, 0))
	c = draw.Crop(c, 0, -beside, 0, 0)
	tiles := draw.Tiles{Rows: 1, Cols: len(row), PadX: vg.Points(14)}
	for i, at := range plot.Align([][]*plot.Plot{row}, tiles, c)[0] {
		row[i].Draw(at)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	// A browser without Liberation Sans uses one of the other fonts. The letters of the first two are equally
	// wide.
	_, err := io.WriteString(w, strings.ReplaceAll(b.String(),
		"font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return err
}
