package main

import (
	"image/color"
	"math"

	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
)

// Plots have no background, and stand on white or nearly black pages: ink is as far from both.
var (
	ink  = color.NRGBA{0x79, 0x79, 0x79, 0xff}
	grid = color.NRGBA{0x79, 0x79, 0x79, 0x40}
)

// look is how a contender is drawn in all plots.
type look struct {
	color  color.NRGBA
	dashes []vg.Length
	shape  vgdraw.GlyphDrawer
}

// looks begin with the colors of Okabe and Ito, but for their black and yellow, which one of the backgrounds would
// swallow. Where color blindness brings two near to each other, dashes and shapes differ.
var looks = map[string]look{
	"rlock":           {rgb(0xd55e00), nil, vgdraw.CircleGlyph{}},
	"fairlock":        {rgb(0x0072b2), nil, polygon{4, .5, 1}},
	"multilock":       {rgb(0xcc79a7), nil, polygon{3, 0, 1}},
	"redlock":         {rgb(0xe69f00), nil, polygon{5, 0, 1}},
	"rueidislock":     {rgb(0x009e73), dashes(1, 2), polygon{3, .5, 1}},
	"redislock":       {rgb(0x56b4e9), dashes(6, 2), polygon{4, 0, 1}},
	"redislock-exp":   {rgb(0x7b68c8), dashes(3, 2), polygon{4, 0, .4}},
	"redsync":         {rgb(0xb5a22a), dashes(8, 2, 2, 2), polygon{5, 0, .4}},
	"redsync-default": {rgb(0x8c6d1f), dashes(4, 2, 1, 2), polygon{6, 0, 1}},
	"redsync-exp":     {rgb(0xb04a86), dashes(10, 3), polygon{3, 0, .4}},
	"etcd":            {rgb(0x8f8f8f), dashes(2, 4), vgdraw.CircleGlyph{}},
	"raw":             {rgb(0x6e7f8d), dashes(1, 1), polygon{4, .5, 1}},
	"message":         {rgb(0x8d7f6e), dashes(1, 4), polygon{3, .5, 1}},
	"relay":           {rgb(0xa8785a), dashes(2, 3), polygon{5, .5, .4}},
	"watch":           {rgb(0x5f8d6e), dashes(5, 5), polygon{4, 0, 1}},
	"rwlock":          {rgb(0xe2603f), nil, polygon{3, .5, 1}},
	"semaphore":       {rgb(0x2f86c6), nil, polygon{4, 0, 1}},
	"latch":           {rgb(0xb86fb0), nil, polygon{6, 0, 1}},
	"etcd-rw":         {rgb(0x9a9a80), dashes(2, 6), vgdraw.CircleGlyph{}},
	"redislock-keys":  {rgb(0x46a0d0), dashes(6, 4), polygon{4, .5, .4}},
	"zset-poll":       {rgb(0x2f9e5b), dashes(3, 3), polygon{6, .5, .4}},
	"counter-poll":    {rgb(0xa3852b), dashes(7, 3), polygon{5, .5, 1}},
	"counter-pubsub":  {rgb(0x6f78a8), dashes(2, 2), polygon{3, .5, .4}},
	"etcd-barrier":    {rgb(0x84909a), dashes(1, 6), vgdraw.CircleGlyph{}},
}

// polygon is a filled glyph with so many corners, the first one on top unless it is turned by a part of a corner's angle.
// With a waist below 1 it is a star.
type polygon struct {
	corners     int
	turn, waist float64
}

func (p polygon) DrawGlyph(c *vgdraw.Canvas, sty vgdraw.GlyphStyle, at vg.Point) {
	var path vg.Path
	for i := range 2 * p.corners {
		radius := sty.Radius * 1.2 // as much to see as a circle
		if i%2 == 1 {
			if p.waist == 1 {
				continue
			}
			radius *= vg.Length(p.waist)
		}
		y, x := math.Sincos(math.Pi/2 + (float64(i)/2+p.turn)*2*math.Pi/float64(p.corners))
		to := vg.Point{X: at.X + radius*vg.Length(x), Y: at.Y + radius*vg.Length(y)}
		if i == 0 {
			path.Move(to)
		} else {
			path.Line(to)
		}
	}
	path.Close()
	c.Fill(path)
}

func rgb(hex uint32) color.NRGBA {
	return color.NRGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 0xff}
}

func dashes(points ...float64) (all []vg.Length) {
	for _, p := range points {
		all = append(all, vg.Points(p))
	}
	return all
}

func (c contender) look() look {
	if l, ok := looks[c.name]; ok {
		return l
	}
	return look{ink, nil, vgdraw.CircleGlyph{}}
}

// line is thick where the contender is ours.
func (c contender) line() vgdraw.LineStyle {
	l, width := c.look(), vg.Points(1.4)
	if c.ours() {
		width = vg.Points(3)
	}
	return vgdraw.LineStyle{Color: l.color, Width: width, Dashes: l.dashes}
}

func (c contender) glyph() vgdraw.GlyphStyle {
	l, radius := c.look(), vg.Points(3)
	if c.ours() {
		radius = vg.Points(4.5)
	}
	return vgdraw.GlyphStyle{Color: l.color, Radius: radius, Shape: l.shape}
}
