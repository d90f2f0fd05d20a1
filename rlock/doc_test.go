package rlock_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	goprinter "go/printer"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestDocumentationShowsNoInternalType(t *testing.T) {
	internal := regexp.MustCompile(
		`\b(failure|protocol|wakeup|session|engine|operate|quorum|wire|inner|handle)\.\w`)
	for _, dir := range []string{"rlock", "fairlock", "multilock", "rwlock", "semaphore", "latch", "election",
		"redisson", "locktest", "pubsub", "watchdog"} {
		fset := token.NewFileSet()
		names, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		testlock.Must(t, err)
		var files []*ast.File
		for _, name := range names {
			if !strings.HasSuffix(name, "_test.go") {
				file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
				testlock.Must(t, err)
				files = append(files, file)
			}
		}
		p, err := doc.NewFromFiles(fset, files, "github.com/lockline/lockline/"+dir)
		testlock.Must(t, err)
		shown := 0
		show := func(decl ast.Node) {
			var text strings.Builder
			testlock.Must(t, goprinter.Fprint(&text, fset, decl))
			if shown++; internal.MatchString(text.String()) {
				t.Errorf("%s shows:\n%s", dir, &text)
			}
		}
		values := func(all ...*doc.Value) {
			for _, v := range all {
				show(v.Decl)
			}
		}
		funcs := func(all ...*doc.Func) {
			for _, f := range all {
				f.Decl.Body = nil
				show(f.Decl)
			}
		}
		values(append(p.Consts, p.Vars...)...)
		funcs(p.Funcs...)
		for _, typ := range p.Types {
			show(typ.Decl)
			values(append(typ.Consts, typ.Vars...)...)
			funcs(append(typ.Funcs, typ.Methods...)...)
		}
		if shown == 0 {
			t.Errorf("%s shows nothing", dir)
		}
	}
}
