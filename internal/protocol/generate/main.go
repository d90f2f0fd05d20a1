// Command generate writes the Lua scripts. Run it by go generate.
//
// A script is made of its source, a file in a folder named lua, and of the functions and constants of libraries. It
// begins with the header of its source. Then come the source's statements. A definition of a library stands
// immediately before the first statement that needs it, so that a script that returns earlier does not spend
// time on it.
//
// Sources are not parsed but split by their form: a statement at top level begins in column 0. No other line does, except
// one that closes or continues it (end, else, a bracket). No local may have the name of a library's definition.
package main

import (
	"fmt"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	shared = "internal/protocol/lua/shared.lua"
	line   = "internal/inbox/lua/line.lua"
	permit = "internal/permit/lua/permit.lua"
)

// folders of scripts, and the libraries of each. A definition uses only what is before it.
var folders = map[string][]string{
	"internal/protocol":       {shared},
	"rlock":                   {shared},
	"internal/queue":          {shared, line, "internal/queue/lua/queue.lua"},
	"internal/permit":         {shared, line, permit},
	"internal/permit/operate": {shared, line, permit},
	"latch":                   {shared, "latch/lua/latch.lua"},
	"election":                {shared},
}

func main() {
	log.SetFlags(0)
	const root = "../.." // of the folder that has the directive
	scripts, err := generate(root)
	if err != nil {
		log.Fatal(err)
	}
	for file, text := range scripts {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the text of each script by the name of its file.
func generate(root string) (map[string]string, error) {
	scripts := map[string]string{}
	for folder, libraries := range folders {
		var library []statement
		for _, file := range libraries {
			_, definitions, err := read(root, file)
			if err != nil {
				return nil, err
			}
			library = append(library, definitions...)
		}
		files, err := filepath.Glob(filepath.Join(root, folder, "lua", "*.lua"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			name := filepath.Base(file)
			source := path.Join(folder, "lua", name)
			if slices.Contains(libraries, source) {
				continue
			}
			if scripts[path.Join(folder, name)], err = script(root, source, library); err != nil {
				return nil, fmt.Errorf("%s: %w", source, err)
			}
		}
	}
	return scripts, nil
}

// script puts a script together.
func script(root, source string, library []statement) (string, error) {
	header, body, err := read(root, source)
	if err != nil {
		return "", err
	}
	parts, err := arrange(body, library)
	return header + "\n--\n-- Generated from " + source + ": edit that, and run go generate ./...\n" + join(parts), err
}

// A statement at top level, with the comment before it.
type statement struct {
	text     string
	apart    bool            // a blank line precedes it
	names    map[string]bool // all that occur in it
	locals   map[string]bool // those declared in it, at whatever level
	declares []string        // those that later statements see
}

// arrange puts definitions of the library among the statements of a script.
func arrange(body, library []statement) (parts []statement, err error) {
	defined := map[string]bool{}
	for i, s := range slices.Concat(library, body) {
		for name := range s.locals {
			if defined[name] {
				return nil, fmt.Errorf("a local has the name of the library's %s:\n%s", name, s.text)
			}
		}
		if i < len(library) {
			if len(s.declares) != 1 {
				return nil, fmt.Errorf("no definition of one function or constant:\n%s", s.text)
			}
			if defined[s.declares[0]] {
				return nil, fmt.Errorf("the libraries define two of this name:\n%s", s.text)
			}
			defined[s.declares[0]] = true
		}
	}
	placed := map[string]bool{}
	own := map[string]bool{} // names that the script has declared so far
	for _, s := range body {
		needed := maps.Clone(s.names)
		for _, d := range slices.Backward(library) {
			if needed[d.declares[0]] {
				maps.Copy(needed, d.names)
			}
		}
		for _, d := range library {
			definition := d.declares[0]
			if !needed[definition] || placed[definition] {
				continue
			}
			for name := range d.names {
				if own[name] && !d.locals[name] {
					return nil, fmt.Errorf("%s of the library means another %s", definition, name)
				}
			}
			placed[definition] = true
			d.apart, s.apart = true, true
			parts = append(parts, d)
		}
		parts = append(parts, s)
		for _, name := range s.declares {
			own[name] = true
		}
	}
	return parts, nil
}

func join(parts []statement) string {
	var b strings.Builder
	for _, s := range parts {
		if s.apart {
			b.WriteByte('\n')
		}
		b.WriteString(s.text)
	}
	return b.String()
}

// continues begins a line that belongs to the statement before it.
var continues = regexp.MustCompile(`^(\s|end\b|else|until\b|[)}\]])`)

// read splits a file into its header and statements.
func read(root, file string) (header string, body []statement, err error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", nil, err
	}
	header, rest, _ := strings.Cut(string(text), "\n\n")
	if !strings.HasPrefix(header, "--") || rest == "" {
		return "", nil, fmt.Errorf("no header in %s, or nothing behind it", file)
	}
	comment, apart := false, true // what precedes the line
	for line := range strings.Lines(rest) {
		switch {
		case line == "\n":
			comment, apart = false, true
			continue
		case len(body) == 0 || !comment && !continues.MatchString(line):
			body = append(body, statement{apart: apart})
		case apart:
			line = "\n" + line
		}
		body[len(body)-1].text += line
		comment, apart = strings.HasPrefix(line, "--"), false
	}
	for i := range body {
		body[i].parse()
	}
	return header, body, nil
}

var (
	// token is a string, a comment, dots, a field, or a word.
	token     = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--.*|\.\.\.?|[.:]\s*\w+|\w+`)
	word      = regexp.MustCompile(`\b[A-Za-z_]\w*`)
	variables = regexp.MustCompile(`\b(?:local|local function|for) ((?:\w+, )*\w+)`)
	params    = regexp.MustCompile(`\bfunction ?\w*\(([^)]*)\)`)
	visible   = regexp.MustCompile(`(?m)^local (?:function )?((?:\w+, )*\w+)`)
)

// parse finds the names in a statement.
func (s *statement) parse() {
	code := token.ReplaceAllStringFunc(s.text, func(t string) string {
		if strings.ContainsAny(t[:1], `'"-.:`) {
			return " "
		}
		return t
	})
	s.names, s.locals = map[string]bool{}, map[string]bool{}
	for _, name := range word.FindAllString(code, -1) {
		s.names[name] = true
	}
	for _, list := range slices.Concat(variables.FindAllStringSubmatch(code, -1), params.FindAllStringSubmatch(code, -1)) {
		for _, name := range word.FindAllString(list[1], -1) {
			s.locals[name] = true
		}
	}
	for _, list := range visible.FindAllStringSubmatch(code, -1) {
		s.declares = append(s.declares, word.FindAllString(list[1], -1)...)
	}
}
