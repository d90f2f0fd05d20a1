package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A story is the part of the demo that is the same in each run: its lines and their order.
type story struct {
	beats []beat
	seen  map[string]bool // cells of the rows of the table
}

// A beat is a line without the parts that differ from run to run. Successive lines that are equal without
// these parts are one beat.
type beat struct {
	text  string
	times int
}

var (
	clock  = regexp.MustCompile(`^\d+\.\d+ s$`)
	port   = regexp.MustCompile(`:\d+`)
	number = regexp.MustCompile(` *\b\d+(\.\d+)?(s\b)?`)
)

const row = "(a row)"

// storyOf returns the lines of a run without the parts that differ from run to run. These parts are the ports
// in the lines before the clock runs, and all numbers in later lines. Durations without a blank, such as 2s,
// stay, because they are constants.
func storyOf(lines []line) story {
	s := story{seen: map[string]bool{}}
	begun := false
	for _, l := range lines {
		timed := len(l) > 1 && clock.MatchString(l[0].text)
		begun = begun || timed
		text := row
		if timed && !strings.HasPrefix(l[1].text, "-- ") {
			for _, cell := range l {
				s.seen[styled(cell, stripped(cell.text))] = true
			}
			s.seen[fmt.Sprint(len(l), " cells")] = true
		} else {
			text = ""
			at := 0
			for _, sp := range l {
				plain := strings.Repeat(" ", sp.column-at) + sp.text
				at = sp.end()
				if begun {
					plain = stripped(plain)
				} else {
					plain = port.ReplaceAllString(plain, ":#")
				}
				text += styled(sp, plain)
			}
		}
		if n := len(s.beats); n > 0 && s.beats[n-1].text == text {
			s.beats[n-1].times++
		} else {
			s.beats = append(s.beats, beat{text, 1})
		}
	}
	return s
}

func styled(s span, text string) string {
	if s.style == "" {
		return text
	}
	return fmt.Sprintf("<%s>%s</%[1]s>", s.style, text)
}

func stripped(text string) string {
	return number.ReplaceAllStringFunc(text, func(n string) string {
		if strings.HasSuffix(n, "s") {
			return n
		}
		return "#"
	})
}

// differs returns the first difference between the story of another run and the story of the picture, or nil.
// If the picture repeats a line, the other story may have this line any number of times, or not at all. So a
// slow machine makes no difference.
func (s story) differs(other story) error {
	for _, cell := range slices.Sorted(maps.Keys(other.seen)) {
		if !s.seen[cell] {
			return fmt.Errorf("no row of the picture has %q, which the demo shows", cell)
		}
	}
	rest := other.beats
	for _, b := range s.beats {
		switch {
		case len(rest) > 0 && rest[0].text == b.text && (b.times > 1 || rest[0].times == 1):
			rest = rest[1:]
		case b.times > 1:
		case len(rest) == 0:
			return fmt.Errorf("the picture has %q, the demo ends before it", b.text)
		default:
			return fmt.Errorf("the picture has %q where the demo shows %q", b.text, rest[0].text)
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("the demo also shows %q", rest[0].text)
	}
	return nil
}

// missing returns the lines of the picture that none of these runs has, although differs finds no difference.
// Either the machine was too slow, or the demo does not show these lines any more.
func (s story) missing(runs ...story) (all []string) {
	shown := map[string]bool{}
	for _, r := range runs {
		maps.Copy(shown, r.seen)
		for _, b := range r.beats {
			shown[b.text] = true
		}
	}
	wanted := maps.Clone(s.seen)
	for _, b := range s.beats {
		wanted[b.text] = true
	}
	for _, text := range slices.Sorted(maps.Keys(wanted)) {
		if !shown[text] {
			all = append(all, text)
		}
	}
	return all
}
