// Package script has the library's Lua scripts, each by its name, as lock/release.
//
// A script is put together when a program uses it first. Its source is a file in a folder of lua. The files
// beside these folders are libraries, whose headers say what the KEYS are. A script begins with the header of
// its source. Then come the source's statements. A function or constant of a library stands immediately
// before the first statement that needs it, so that a script that returns earlier does not spend time on it.
//
// Sources are not parsed but split by their form: a statement at top level begins in column 0. No other line
// does, except one that closes or continues it (end, else, a bracket). No local has the name of a library's
// definition.
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

// libraries of the scripts in each folder. A definition uses only what is before it.
var libraries = map[string][]string{
	"lock":     {"base.lua", "lock.lua", "permits.lua", "queue.lua"},
	"latch":    {"base.lua", "latch.lua"},
	"election": {"base.lua", "lock.lua"},
	"redisson": {"base.lua", "redisson.lua"},
}

// Text is a whole script. Its first line is the command that prints it. It panics if there is none of this
// name.
var Text = textOf(read)

// With is Text with another text of one file in lua, for tests that break it.
func With(file, text string) func(name string) string {
	return textOf(func(f string) string {
		if f == file {
			return text
		}
		return read(f)
	})
}

// Names are those of all scripts.
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

// textOf makes scripts of the files that read returns. Libraries are read once, and only for a script that
// needs them.
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

// A library is all that the scripts of a folder can use.
type library struct {
	definitions []definition
	index       map[string]int // in definitions, by name
}

type definition struct {
	text string // with a blank line behind it
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

// uses are the definitions whose names occur in code.
func (l *library) uses(code string) (all []int) {
	for word := range words(code) {
		if i, ok := l.index[word]; ok && !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	return all
}

// script puts a script together.
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
// blank lines behind it.
func split(text string) (header string, statements []string) {
	header, text, _ = strings.Cut(text, "\n\n")
	begin, at, comment := 0, 0, false // comment: the line before is one
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

// begins: the line does not belong to the statement before it.
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

// words are the names and keywords in code, but for names of fields and what is in comments and strings.
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

// length of the word or number that code begins with.
func length(code string) int {
	for i := range len(code) {
		if !wordy(code[i]) {
			return i
		}
	}
	return len(code)
}

// wordy: c may be in words and numbers.
func wordy(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
