//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// A page has the parts of a Markdown file that are checked.
type page struct {
	name    string // path below the checkout, with slashes
	anchors map[string]bool
	links   []link
	blocks  []block
	errs    []error
}

type link struct{ place, to string }

// A block is a fenced block of code.
type block struct {
	place, language, text string
	directive             string // text of the comment <!-- check: … --> before the block
}

// readPages reads all Markdown files.
func readPages(checkout string) (pages []*page, err error) {
	err = fs.WalkDir(os.DirFS(checkout), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" {
			return err
		}
		source, err := fs.ReadFile(os.DirFS(checkout), name)
		if err == nil {
			pages = append(pages, readPage(name, source))
		}
		return err
	})
	return pages, err
}

var (
	markdown  = goldmark.New(goldmark.WithExtensions(extension.GFM))
	directive = regexp.MustCompile(`^<!--\s*check:\s*(.*?)\s*-->\s*$`)
)

func readPage(name string, source []byte) *page {
	p := &page{name: name, anchors: map[string]bool{}}
	line := 0 // line of the present block
	place := func() string { return fmt.Sprintf("%s:%d", name, line) }
	said, saidAt := "", ""
	unused := func() {
		if said != "" {
			p.errs = append(p.errs, fmt.Errorf("%s: no block follows this comment: %s", saidAt, said))
		}
		said = ""
	}
	tree := markdown.Parser().Parse(text.NewReader(source))
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		if n.Type() == ast.TypeBlock && n.Lines().Len() > 0 {
			line = 1 + strings.Count(string(source[:n.Lines().At(0).Start]), "\n")
		}
		switch n := n.(type) {
		case *ast.HTMLBlock:
			if m := directive.FindSubmatch(n.Lines().Value(source)); m != nil {
				unused()
				said, saidAt = string(m[1]), place()
			}
			return ast.WalkContinue, nil // other comments may come in between
		case *ast.FencedCodeBlock:
			p.blocks = append(p.blocks, block{place(), string(n.Language(source)),
				string(n.Lines().Value(source)), said})
			said = ""
		case *ast.Heading:
			p.anchors[p.anchor(plain(n, source))] = true
		case *ast.Link:
			p.links = append(p.links, link{place(), string(n.Destination)})
		case *ast.Image:
			p.links = append(p.links, link{place(), string(n.Destination)})
		case *ast.AutoLink:
			p.links = append(p.links, link{place(), string(n.URL(source))})
		}
		if n.Type() == ast.TypeBlock {
			unused()
		}
		return ast.WalkContinue, nil
	})
	unused()
	return p
}

func plain(n ast.Node, source []byte) string {
	var s strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			s.Write(t.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return s.String()
}

// anchor returns the anchor that GitHub makes of a heading.
func (p *page) anchor(heading string) string {
	base := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	anchor := base
	for n := 1; p.anchors[anchor]; n++ {
		anchor = fmt.Sprintf("%s-%d", base, n)
	}
	return anchor
}
