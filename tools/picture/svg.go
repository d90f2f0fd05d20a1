package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"html"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// All lengths are in user units. Text is put on a grid of cells, and is as wide as its cells in any font.
	cellWidth, cellHeight = 8, 17
	fontSize              = 13.3
	padding               = 16
	baseline              = 13 // distance from the top of a line to its baseline

	startup = time.Second      // time in which only the command shows
	rest    = 10 * time.Second // time to read all lines before the animation begins again
)

// style is a class of the picture's style sheet.
type style string

// styleOf has the style for each code of the terminal.
var styleOf = map[string]style{"0": "", "1": "bold", "2": "faint", "31": "red", "32": "green", "33": "yellow"}

// A theme has the colors of the styles and of the window.
type theme struct {
	paper, edge string
	ink         map[style]string
}

// The colors are similar to the colors of the plots, and light or dark enough for small text.
var (
	light = theme{"#ffffff", "#c9c9c9", map[style]string{"": "#24292f", "bold": "#24292f", "faint": "#646c74",
		"red": "#c22f1c", "green": "#00704f", "yellow": "#876000"}}
	dark = theme{"#14181d", "#3d444d", map[style]string{"": "#d7dce1", "bold": "#f2f5f8", "faint": "#8f979f",
		"red": "#ff7b6b", "green": "#35c79a", "yellow": "#e0b341"}}
)

func (t theme) css() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".paper{fill:%s}.edge{fill:none;stroke:%s}", t.paper, t.edge)
	for _, s := range []style{"", "bold", "faint", "red", "green", "yellow"} {
		selector := "text,.cursor"
		if s != "" {
			selector = "." + string(s)
		}
		fmt.Fprintf(&b, "%s{fill:%s}", selector, t.ink[s])
	}
	return b.String()
}

// svg draws all lines. A cover moves down, so that one line after another appears. If the reader's program
// has no animations, or the reader does not want any, the cover is below the picture, so that all lines show.
func (r recording) svg() []byte {
	columns := 0
	for _, m := range r {
		if n := len(m.line); n > 0 {
			columns = max(columns, m.line[n-1].end())
		}
	}
	width, height := columns*cellWidth+2*padding, len(r)*cellHeight+2*padding

	var b bytes.Buffer
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>%s</title>
<style>
text{font:%gpx ui-monospace,SFMono-Regular,Menlo,Consolas,`+
			`"Liberation Mono","DejaVu Sans Mono",monospace}.bold{font-weight:bold}
%s
@media (prefers-color-scheme:dark){%s}
@media (prefers-reduced-motion:no-preference){.cover{animation:appear %.1fs step-end infinite}}
%s
</style>
<rect class="paper" width="%[1]d" height="%[2]d" rx="6"/>
`, width, height, html.EscapeString(command), fontSize, light.css(), dark.css(),
		r.length().Seconds(), r.keyframes(height))
	for i, m := range r {
		for _, s := range m.line {
			fmt.Fprintf(&b, `<text x="%d" y="%d"`, padding+s.column*cellWidth, padding+i*cellHeight+baseline)
			if n := utf8.RuneCountInString(s.text); n > 1 {
				fmt.Fprintf(&b, ` textLength="%d"`, n*cellWidth)
			}
			if s.style != "" {
				fmt.Fprintf(&b, ` class="%s"`, s.style)
			}
			fmt.Fprintf(&b, ">%s</text>\n", html.EscapeString(s.text))
		}
	}
	// The cover is wider than the text, because letters may reach out of their cells.
	fmt.Fprintf(&b, `<g class="cover"><rect class="paper" x="%d" y="%d" width="%d" height="%d"/>`,
		padding/2, height, width-padding, height)
	fmt.Fprintf(&b, `<rect class="cursor" x="%d" y="%d" width="%d" height="%d"/></g>`+"\n", padding, height,
		cellWidth, cellHeight-2)
	fmt.Fprintf(&b, `<rect class="edge" x=".5" y=".5" width="%d" height="%d" rx="6"/>`+"\n</svg>\n",
		width-1, height-1)
	return b.Bytes()
}

// length returns the length of one round of the animation.
func (r recording) length() time.Duration { return r[len(r)-1].at + rest }

// keyframes returns the positions of the cover's top over time.
func (r recording) keyframes(height int) string {
	var b strings.Builder
	b.WriteString("@keyframes appear{")
	percent := func(m moment) string { return fmt.Sprintf("%.2f%%", 100*m.at.Seconds()/r.length().Seconds()) }
	for i, m := range r {
		if i+1 < len(r) && percent(r[i+1]) == percent(m) {
			continue
		}
		top := padding + (i+1)*cellHeight
		if i+1 == len(r) {
			top = height
		}
		fmt.Fprintf(&b, "%s{transform:translateY(%dpx)}", percent(m), top-height)
	}
	b.WriteString("to{transform:none}}")
	return b.String()
}

// linesOf reads the lines of a picture.
func linesOf(svg []byte) ([]line, error) {
	var picture struct {
		Texts []struct {
			X     int    `xml:"x,attr"`
			Y     int    `xml:"y,attr"`
			Class string `xml:"class,attr"`
			Text  string `xml:",chardata"`
		} `xml:"text"`
	}
	if err := xml.Unmarshal(svg, &picture); err != nil {
		return nil, err
	}
	var all []line
	for _, t := range picture.Texts {
		i := (t.Y - padding) / cellHeight
		all = append(all, make([]line, max(0, i+1-len(all)))...)
		all[i] = append(all[i], span{(t.X - padding) / cellWidth, style(t.Class), t.Text})
	}
	return all, nil
}
