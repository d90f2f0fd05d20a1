// Package script has the Lua scripts of the library. Each has a name, for example lock/release.
//
// A script is assembled when a program first uses it. Its source is a file in a subfolder of lua. The files
// directly in lua are libraries. The headers of most libraries describe the KEYS. A script begins with the
// header of its source, and the statements of the source follow. A function or constant of a library is
// placed immediately before the first statement that needs it. So a script that returns earlier does not
// spend time on the definition.
//
// Sources are not parsed. They are split into statements by the rule that a statement at top level begins in
// column 0. Besides, only comments and lines that close or continue a statement (end, else, a bracket) begin
// there. No local variable of a source may have the name of a definition in a library, because names in a
// source show which definitions it needs.
package script

import (
	"embed"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
)

//go:embed lua
var files embed.FS

// libraries has, for each folder, the libraries of its scripts. A definition in a library uses only
// definitions before it, in the same library or in an earlier one.
var libraries = map[string][]string{
	"lock":     {"base.lua", "lock.lua", "permits.lua", "queue.lua"},
	"latch":    {"base.lua", "latch.lua"},
	"election": {"base.lua", "lock.lua"},
	"redisson": {"base.lua", "redisson.lua"},
}

// Text returns the text of a script. Its first line is a comment, with the command that prints the script.
// Text panics if there is no script with this name.
var Text = textOf(read)

// With returns a function like Text that uses the given text instead of one file of folder lua. With is for
// tests that break a script.
func With(file, text string) func(name string) string {
	return textOf(func(f string) string {
		if f == file {
			return text
		}
		return read(f)
	})
}

// Names returns the names of all scripts.
func Names() (names []string) {
	sources, err := fs.Glob(files, "lua/*/*.lua")
	if err != nil {
		panic(err)
	}
	for _, file := range sources {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(file, "lua/"), ".lua"))
	}
	return names
}

func read(file string) string {
	text, err := files.ReadFile("lua/" + file)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// textOf returns a function that assembles scripts from the files that read returns. The libraries of a
// folder are read once, when a script of this folder is first assembled.
func textOf(read func(file string) string) func(name string) string {
	folders := map[string]func() *library{}
	for folder, files := range libraries {
		folders[folder] = sync.OnceValue(func() *library {
			l := &library{index: map[string]int{}}
			for _, file := range files {
				l.add(read(file))
			}
			return l
		})
	}
	return func(name string) string {
		source := read(name + ".lua")
		folder, _, _ := strings.Cut(name, "/")
		return folders[folder]().script(name, source)
	}
}

// A library has all definitions that the scripts of a folder can use.
type library struct {
	definitions []definition
	index       map[string]int // index in definitions, by name
}

type definition struct {
	text string // followed by a blank line
	uses []int
}

func (l *library) add(text string) {
	_, statements := split(text)
	for _, s := range statements {
		for word := range words(s) {
			if word != "local" && word != "function" {
				l.index[word] = len(l.definitions)
				break
			}
		}
		l.definitions = append(l.definitions, definition{strings.TrimRight(s, "\n") + "\n\n", l.uses(s)})
	}
}

// uses returns the indexes of the definitions whose names occur in code.
func (l *library) uses(code string) (all []int) {
	for word := range words(code) {
		if i, ok := l.index[word]; ok && !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	return all
}

// script assembles a script.
func (l *library) script(name, source string) string {
	header, statements := split(source)
	var text strings.Builder
	text.WriteString("-- lockline script " + name + "\n--\n" + header + "\n\n")
	needed, placed := make([]bool, len(l.definitions)), make([]bool, len(l.definitions))
	for _, s := range statements {
		for _, d := range l.uses(s) {
			needed[d] = true
		}
		for i, d := range slices.Backward(l.definitions) {
			if needed[i] && !placed[i] {
				for _, u := range d.uses {
					needed[u] = true
				}
			}
		}
		for i, d := range l.definitions {
			if !needed[i] || placed[i] {
				continue
			}
			if placed[i] = true; !strings.HasSuffix(text.String(), "\n\n") {
				text.WriteByte('\n')
			}
			text.WriteString(d.text)
		}
		text.WriteString(s)
	}
	return text.String()
}

// split returns the header of a file and its statements at top level, each with the comment before it and the
// blank lines after it.
func split(text string) (header string, statements []string) {
	header, text, _ = strings.Cut(text, "\n\n")
	begin, at, comment := 0, 0, false // comment is true if the previous line is a comment
	for line := range strings.Lines(text) {
		if at > begin && !comment && begins(line) {
			statements = append(statements, text[begin:at])
			begin = at
		}
		comment = strings.HasPrefix(line, "--")
		at += len(line)
	}
	return header, append(statements, text[begin:])
}

// begins reports whether the line begins a statement.
func begins(line string) bool {
	if strings.IndexByte(" \n)}]", line[0]) >= 0 {
		return false
	}
	switch line[:length(line)] {
	case "end", "else", "elseif", "until":
		return false
	}
	return true
}

// words yields the names and keywords in code. It leaves out the names of fields, and the text of comments
// and strings.
func words(code string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 0; i < len(code); {
			n := 1
			switch c := code[i]; {
			case wordy(c):
				if n = length(code[i:]); c > '9' && !yield(code[i:i+n]) {
					return
				}
			case c == '-' && code[i+1] == '-':
				n = strings.IndexByte(code[i:], '\n')
			case c == '.' && code[i+1] == '.':
				n = 2
			case c == '.' || c == ':':
				n = 1 + length(code[i+1:])
			case c == '\'' || c == '"':
				for code[i+n] != c {
					if code[i+n] == '\\' {
						n++
					}
					n++
				}
				n++
			}
			i += n
		}
	}
}

// length returns the length of the word or number with which code begins.
func length(code string) int {
	for i := range len(code) {
		if !wordy(code[i]) {
			return i
		}
	}
	return len(code)
}

// wordy reports whether c may be part of a word or a number.
func wordy(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
