package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// These are the tiers of tests. The name of a file decides its tier, as CONTRIBUTING.md explains.
const (
	hermetic = "hermetic"
	real_    = "real"
	nightly  = "nightly"
)

func tierOf(path string) string {
	switch name := filepath.Base(path); {
	case strings.HasSuffix(name, "_nightly_test.go"):
		return nightly
	case strings.HasSuffix(name, "_real_test.go"):
		return real_
	case name == "main_test.go", strings.HasPrefix(name, "helper"):
		return "" // helpers of the tests of all tiers
	}
	return hermetic
}

// outside matches functions that start a process, or need a socket or a real server. A hermetic test must not
// call them.
var outside = regexp.MustCompile(`^(testredis\.(Start|Shared|StartCluster|StartSentinel)\w*|` +
	`testlock\.(Shared|SharedToo|Child|User|DocumentedUser)|exec\.Command\w*|net\.(Listen|Dial)\w*|` +
	`httptest\.NewServer|faultproxy\.New)$`)

// expires has the options that set a time. On a busy machine, a short time can run out too early.
var expires = []string{"WithLease", "WithWatchdogTimeout", "WithWaiterTimeout"}

func TestEachTestKeepsTheRulesOfItsTier(t *testing.T) {
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || path == "../tools"):
			// The tests of tools are left out, because tools run commands.
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			files++
			for _, wrong := range rulesBroken(t, path, nil) {
				t.Errorf("%s: %s", strings.TrimPrefix(path, "../"), wrong)
			}
		}
		return nil
	})
	testlock.Must(t, err)
	if files == 0 {
		t.Error("no tests were found")
	}
}

// rulesBroken returns a line for each rule that a file breaks. text is the content of the file. If text is
// nil, rulesBroken reads the file.
func rulesBroken(t *testing.T, path string, text any) (wrong []string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	testlock.Must(t, err)
	tier := tierOf(path)
	if tagged := hasTag(file, nightly); tagged != (tier == nightly) {
		wrong = append(wrong, "the build tag nightly and the name *_nightly_test.go go together")
	}
	explained := map[int]bool{} // lines at a comment that says why real time must pass
	for _, group := range file.Comments {
		if strings.Contains(group.Text(), "server's clock") {
			for line := fset.Position(group.Pos()).Line; line <= fset.Position(group.End()).Line+1; line++ {
				explained[line] = true
			}
		}
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && tier == real_ && isTest(f) &&
			(len(f.Body.List) == 0 || callOf(f.Body.List[0]) != "t.Parallel") {
			wrong = append(wrong, f.Name.Name+" does not begin with t.Parallel()")
		}
	}
	// rests has the calls of time.After in statements that only receive from it. The cases of a select are
	// left out.
	rests := map[*ast.CallExpr]bool{}
	cases := map[ast.Stmt]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommClause:
			cases[n.Comm] = true
		case *ast.ExprStmt:
			if receive, ok := n.X.(*ast.UnaryExpr); ok && !cases[n] {
				if call, ok := receive.X.(*ast.CallExpr); ok && nameOf(call.Fun) == "time.After" {
					rests[call] = true
				}
			}
		}
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := nameOf(call.Fun)
		at := fset.Position(call.Pos())
		switch {
		case tier == hermetic && outside.MatchString(name):
			wrong = append(wrong, at.String()+": "+name+" in a hermetic test")
		case tier == real_ && (name == "time.Sleep" || rests[call]) && !explained[at.Line]:
			wrong = append(wrong, at.String()+": "+name+
				" in a test of the real tier, without a comment about the server's clock")
		case (tier == real_ || tier == nightly && !explained[at.Line]) && slices.Contains(expires,
			name[strings.LastIndex(name, ".")+1:]) && len(call.Args) == 1 && isShort(call.Args[0]):
			wrong = append(wrong, at.String()+": "+name+" of less than 5 s outside fake time")
		}
		return true
	})
	return wrong
}

func hasTag(file *ast.File, tag string) bool {
	for _, group := range file.Comments {
		for _, c := range group.List {
			if c.Pos() < file.Package && strings.HasPrefix(c.Text, "//go:build ") &&
				slices.Contains(strings.Fields(c.Text), tag) {
				return true
			}
		}
	}
	return false
}

func isTest(f *ast.FuncDecl) bool {
	return f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain"
}

// callOf returns the name of the function that a statement calls, or "" for other statements.
func callOf(s ast.Stmt) string {
	if e, ok := s.(*ast.ExprStmt); ok {
		if call, ok := e.X.(*ast.CallExpr); ok {
			return nameOf(call.Fun)
		}
	}
	return ""
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name + "." + e.Sel.Name
		}
		return "." + e.Sel.Name
	}
	return ""
}

// isShort reports whether e is written as a duration of more than nothing and less than 5 s.
func isShort(e ast.Expr) bool {
	n := 1.0
	if product, ok := e.(*ast.BinaryExpr); ok && product.Op == token.MUL {
		if factor, ok := product.X.(*ast.BasicLit); ok {
			n, _ = strconv.ParseFloat(factor.Value, 64)
		}
		e = product.Y
	}
	unit, ok := map[string]float64{"time.Nanosecond": 1e-9, "time.Microsecond": 1e-6,
		"time.Millisecond": 1e-3, "time.Second": 1}[nameOf(e)]
	return ok && n > 0 && n*unit < 5
}

func TestARuleThatIsBrokenIsFound(t *testing.T) {
	const parallel = "func TestX(t *testing.T) { t.Parallel(); "
	for _, c := range []struct {
		file, text, wrong string
	}{
		{"x_test.go", "func TestX(t *testing.T) { time.Sleep(1); rlock.WithLease(time.Second) }", ""},
		{"x_test.go", "func TestX(t *testing.T) { testredis.Start(t) }",
			"testredis.Start in a hermetic test"},
		{"x_test.go", "func TestX(t *testing.T) { testlock.Shared(t) }",
			"testlock.Shared in a hermetic test"},
		{"main_test.go", "func open(t *testing.T) { testlock.Shared(t) }", ""},
		{"x_real_test.go", parallel + "testlock.Shared(t); rlock.WithLease(5*time.Second) }", ""},
		{"x_real_test.go", "func TestX(t *testing.T) { testlock.Shared(t) }",
			"does not begin with t.Parallel()"},
		{"x_real_test.go", parallel + "time.Sleep(1) }", "time.Sleep in a test of the real tier"},
		{"x_real_test.go", parallel + "<-time.After(1) }", "time.After in a test of the real tier"},
		{"x_real_test.go", parallel + "\n// The server's clock has to go on.\ntime.Sleep(1) }", ""},
		{"x_real_test.go", parallel + "rlock.WithLease(4*time.Second) }", "rlock.WithLease of less than 5 s"},
		{"x_real_test.go", parallel + "WithWatchdogTimeout(time.Second) }",
			"WithWatchdogTimeout of less than 5 s"},
		{"x_real_test.go", "//go:build nightly\n\npackage x\n" + parallel + "}", "go together"},
		{"x_nightly_test.go", "func TestX(t *testing.T) {}", "go together"},
		{"x_nightly_test.go", "//go:build unix && nightly\n\npackage x\nfunc TestX(t *testing.T) {}", ""},
	} {
		text := c.text
		if !strings.Contains(text, "package x") {
			text = "package x\n" + text
		}
		got := strings.Join(rulesBroken(t, c.file, text), "\n")
		if (got == "") != (c.wrong == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %s\nfound %q, want %q", c.file, c.text, got, c.wrong)
		}
	}
}
