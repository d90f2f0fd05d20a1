package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A text is a paragraph of a comment or of a page, an item of a list or a cell of a table.
type text struct {
	file     string // path with slashes, from the root of the repository
	words    string // lines joined by spaces, without the marks of comments
	starts   []int  // index in words at which each line begins
	lines    []int  // number of each line in the file
	comment  bool   // the text is part of a comment, not of a page
	item     bool   // the text is an item of a list in a comment
	trailing bool   // the text is behind code on the same line
	name     string // name of the declaration whose comment begins with this text; empty: none
	function bool   // the declaration is a function
}

func (t *text) add(line int, words string) {
	if t.words != "" {
		t.words += " "
	}
	t.starts = append(t.starts, len(t.words))
	t.lines = append(t.lines, line)
	t.words += words
}

// lineAt returns the number of the line in which the index lies.
func (t text) lineAt(index int) int {
	line := 0
	for i, start := range t.starts {
		if start <= index {
			line = t.lines[i]
		}
	}
	return line
}

// A line is one line of a comment, without its mark.
type line struct {
	number int
	words  string
}

// ofFile returns the texts of a file of Go, Lua, Markdown or shell. It returns nothing for other files.
func ofFile(root, file string) ([]text, error) {
	name := filepath.Base(file)
	ext := filepath.Ext(name)
	if ext != ".go" && ext != ".lua" && ext != ".md" && ext != ".sh" && ext != "" || name == "LICENSE" {
		return nil, nil
	}
	src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return nil, err
	}
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	var texts []text
	switch {
	case ext == ".go":
		texts, err = ofGo(file, src)
	case ext == ".lua":
		texts = ofScript(src, luaComment, luaFunction)
	case ext == ".md":
		texts = ofPage(src)
	case ext == ".sh" || bytes.HasPrefix(src, []byte("#!")):
		texts = ofScript(src, shellComment, shellFunction)
	}
	for i := range texts {
		texts[i].file = file
	}
	return texts, err
}

var (
	directive = regexp.MustCompile(`^(//(go:|nolint|export |line |\+build)|/\*line )`)
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	license   = regexp.MustCompile(`Copyright|Licensed under|SPDX-`)
	output    = regexp.MustCompile(`(?i)^\s*(unordered )?output:`)
)

// ofGo returns the texts of all comments of a Go file. It leaves out directives, licenses, files that a
// program has generated, and the expected output of examples.
func ofGo(file string, src []byte) (texts []text, err error) {
	if generated.Match(src) {
		return nil, nil
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	type declared struct {
		name     string
		function bool
	}
	documented := map[*ast.CommentGroup]declared{}
	names := func(doc *ast.CommentGroup, function bool, idents ...*ast.Ident) {
		if doc != nil && len(idents) > 0 {
			documented[doc] = declared{idents[0].Name, function}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names(n.Doc, true, n.Name)
		case *ast.GenDecl:
			if len(n.Specs) == 1 && !n.Lparen.IsValid() {
				switch s := n.Specs[0].(type) {
				case *ast.TypeSpec:
					names(n.Doc, false, s.Name)
				case *ast.ValueSpec:
					names(n.Doc, false, s.Names...)
				}
			}
		case *ast.TypeSpec:
			names(n.Doc, false, n.Name)
		case *ast.ValueSpec:
			names(n.Doc, false, n.Names...)
		case *ast.InterfaceType:
			for _, method := range n.Methods.List {
				_, function := method.Type.(*ast.FuncType)
				names(method.Doc, function, method.Names...)
			}
		case *ast.StructType:
			for _, field := range n.Fields.List {
				names(field.Doc, false, field.Names...)
			}
		}
		return true
	})
	for _, group := range parsed.Comments {
		if license.MatchString(group.Text()) || output.MatchString(group.Text()) {
			continue
		}
		var lines []line
		for _, c := range group.List {
			if directive.MatchString(c.Text) {
				continue
			}
			body := strings.TrimSuffix(c.Text[2:], "*/")
			for i, words := range strings.Split(body, "\n") {
				if strings.HasPrefix(c.Text, "/*") {
					words = " " + strings.TrimLeft(words, " \t*")
				}
				lines = append(lines, line{fset.Position(c.Pos()).Line + i, words})
			}
		}
		first := fset.Position(group.Pos())
		before := src[first.Offset-first.Column+1 : first.Offset]
		trailing := len(bytes.TrimSpace(before)) > 0
		paragraphs := ofComment(lines, trailing, true)
		if d, ok := documented[group]; ok && len(paragraphs) > 0 {
			paragraphs[0].name, paragraphs[0].function = d.name, d.function
		}
		texts = append(texts, paragraphs...)
	}
	return texts, nil
}

var indented = regexp.MustCompile(`^(?:\t|  )`)

var item = regexp.MustCompile(`^\s*(?:[-*•]|\d+[.)])\s+`)

// ofComment splits a comment into texts. With godoc, indented lines are code, unless they are items of a
// list, and lines that begin with # are headings. Both are left out.
func ofComment(lines []line, trailing, godoc bool) (texts []text) {
	var t *text
	inList := false
	begin := func() {
		texts = append(texts, text{comment: true, trailing: trailing && len(texts) == 0})
		t = &texts[len(texts)-1]
	}
	for _, l := range lines {
		words := strings.TrimPrefix(l.words, " ")
		switch {
		case strings.TrimSpace(words) == "":
			t, inList = nil, false
			continue
		case godoc && strings.HasPrefix(words, "# "):
			t, inList = nil, false
			continue
		case item.MatchString(words) && (!godoc || strings.HasPrefix(words, " ") || !trailing && t == nil):
			inList = true
			begin()
			t.item = true
			words = item.ReplaceAllString(words, "")
		case godoc && !inList && !trailing && indented.MatchString(words):
			t = nil
			continue
		case !godoc && headerEntry.MatchString(words):
			begin()
		case t == nil:
			begin()
		}
		t.add(l.number, strings.TrimSpace(words))
	}
	return texts
}

// headerEntry matches the beginning of the description of one key, argument or reply of a script.
var headerEntry = regexp.MustCompile(`^\s*(?:KEYS|ARGV|Reply|'|[a-z_]+   )`)

var (
	luaFunction = regexp.MustCompile(`^\s*(?:local\s+)?function\s+([\w.]+)` +
		`|^\s*(?:local\s+)?(\w+)\s*=\s*function`)
	shellFunction = regexp.MustCompile(`^\s*(\w+)\(\)`)
)

// luaComment returns the index at which the comment in a line of Lua begins, or -1 if there is no comment.
func luaComment(line string) int { return commentAt(line, "--", true) }

func shellComment(line string) int {
	if strings.HasPrefix(line, "#!") {
		return -1
	}
	at := commentAt(line, "#", false)
	if at > 0 && line[at-1] != ' ' && line[at-1] != '\t' {
		return -1 // as in $# and ${x#y}
	}
	return at
}

// commentAt returns the first index of a mark outside strings in quotes, or -1 if there is no such mark.
func commentAt(line, mark string, escapes bool) int {
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == '\\' && (escapes || quote == '"'):
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case strings.HasPrefix(line[i:], mark):
			return i
		}
	}
	return -1
}

// ofScript returns the texts of the comments of a script. The argument comment returns the index in a line at
// which a comment begins, and function matches a line that begins a function.
func ofScript(src []byte, comment func(string) int, function *regexp.Regexp) (texts []text) {
	var block []line
	end := func(next string) {
		paragraphs := ofComment(block, false, false)
		if m := function.FindStringSubmatch(next); m != nil && len(paragraphs) > 0 {
			paragraphs[0].name, paragraphs[0].function = strings.Join(m[1:], ""), true
		}
		if len(block) > 0 && !license.MatchString(block[0].words) {
			texts = append(texts, paragraphs...)
		}
		block = nil
	}
	number := 0
	for l := range strings.Lines(string(src)) {
		number++
		l = strings.TrimRight(l, "\n")
		at := comment(l)
		if at < 0 {
			end(l)
			continue
		}
		words := strings.TrimLeft(l[at:], "-#")
		if strings.TrimSpace(l[:at]) == "" {
			block = append(block, line{number, words})
			continue
		}
		end(l)
		texts = append(texts, ofComment([]line{{number, words}}, true, false)...)
	}
	end("")
	return texts
}

var (
	tableRule = regexp.MustCompile(`^\|[-:| ]+\|?$`)
	fence     = regexp.MustCompile("^\\s*(```|~~~)")
)

// ofPage returns the texts of a page in Markdown. It leaves out headings, code, comments and pictures.
func ofPage(src []byte) (texts []text) {
	var t *text
	inCode, inComment := false, false
	number := 0
	for l := range strings.Lines(string(src)) {
		number++
		l = strings.TrimRight(l, "\n")
		switch {
		case fence.MatchString(l):
			inCode = !inCode
			t = nil
			continue
		case inCode:
			continue
		case inComment || strings.HasPrefix(l, "<!--"):
			inComment = !strings.Contains(l, "-->")
			t = nil
			continue
		case strings.TrimSpace(l) == "" || strings.HasPrefix(l, "#") || strings.HasPrefix(l, "!["),
			strings.HasPrefix(l, "[!["), tableRule.MatchString(l):
			t = nil
			continue
		case strings.HasPrefix(l, "|"):
			t = nil
			for _, cell := range strings.Split(strings.ReplaceAll(strings.Trim(l, "|"), `\|`, "/"), "|") {
				c := text{}
				c.add(number, strings.TrimSpace(cell))
				texts = append(texts, c)
			}
			continue
		case item.MatchString(l):
			t = nil
			l = item.ReplaceAllString(l, "")
		}
		if t == nil {
			texts = append(texts, text{})
			t = &texts[len(texts)-1]
		}
		t.add(number, strings.TrimLeft(strings.TrimSpace(l), "> "))
	}
	return texts
}
