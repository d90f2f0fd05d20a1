package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// A recording has the lines of a terminal. Each line is added at the bottom, and stays.
type recording []moment

// A moment is a line with the time at which it appears.
type moment struct {
	at   time.Duration // time since the start of the recording
	line line
}

// line has its spans from left to right.
type line []span

// span is text of one style that has no two blanks in succession.
type span struct {
	column int
	style  style
	text   string
}

func (s span) end() int { return s.column + utf8.RuneCountInString(s.text) }

func (l line) String() string {
	var b strings.Builder
	at := 0
	for _, s := range l {
		b.WriteString(strings.Repeat(" ", s.column-at) + s.text)
		at = s.end()
	}
	return b.String()
}

func (r recording) String() string {
	var b strings.Builder
	for _, m := range r {
		fmt.Fprintln(&b, m.line)
	}
	return b.String()
}

func (r recording) lines() (all []line) {
	for _, m := range r {
		all = append(all, m.line)
	}
	return all
}

var (
	escape = regexp.MustCompile("\x1b\\[([0-9;]*)m")
	word   = regexp.MustCompile(`\S+( \S+)*`)
)

// parse reads a line with the escape sequences of a terminal.
func parse(text string) (line, error) {
	var l line
	var current style
	column := 0
	for text != "" {
		part := text
		at := escape.FindStringSubmatchIndex(text)
		if at != nil {
			part = text[:at[0]]
		}
		for _, w := range word.FindAllStringIndex(part, -1) {
			l = append(l, span{column + utf8.RuneCountInString(part[:w[0]]), current, part[w[0]:w[1]]})
		}
		column += utf8.RuneCountInString(part)
		if at == nil {
			break
		}
		code := text[at[2]:at[3]]
		known := false
		if current, known = styleOf[code]; !known {
			return nil, fmt.Errorf("%q has the unknown style %q", text, code)
		}
		text = text[at[1]:]
	}
	return l, nil
}
