package lockvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// Analyzer reports mistakes in the use of Lockline's locks. The package comment lists them.
var Analyzer = &analysis.Analyzer{
	Name:     "lockvet",
	Doc:      "report mistakes in the use of Lockline's locks",
	URL:      "https://pkg.go.dev/" + library + "/contrib/lockvet",
	Run:      run,
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
}

// A checker checks one package.
type checker struct {
	*analysis.Pass
	cfgs         *ctrlflow.CFGs
	acquisitions map[ast.Node]*acquisition // by their field assign
	// values has the initial values of variables. The value is nil if the variable is assigned again,
	// or if its address is taken.
	values    map[*types.Var]ast.Expr
	hasOwners bool               // rlock.WithOwner is called, so any context may carry a hold
	hidden    map[line]bool      // lines for which a comment hides reports
	reported  map[token.Pos]bool // positions that have a report
}

// An acquisition is a statement such as held, hold, err := m.Lock(ctx). If a variable is blank, its field is
// nil.
type acquisition struct {
	assign          *ast.AssignStmt
	call            *ast.CallExpr
	held, hold, err *types.Var
}

type line struct {
	file   *token.File
	number int
}

func run(pass *analysis.Pass) (any, error) {
	c := &checker{Pass: pass, cfgs: pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs),
		acquisitions: map[ast.Node]*acquisition{}, values: map[*types.Var]ast.Expr{},
		hidden: map[line]bool{}, reported: map[token.Pos]bool{}}
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	in.Preorder([]ast.Node{(*ast.AssignStmt)(nil), (*ast.CallExpr)(nil), (*ast.RangeStmt)(nil),
		(*ast.UnaryExpr)(nil), (*ast.ValueSpec)(nil)}, c.collect)
	for _, file := range pass.Files {
		if !isTest(pass.Fset, file) {
			c.readComments(file)
			c.check(file)
		}
	}
	return nil, nil
}

func isTest(fset *token.FileSet, file *ast.File) bool {
	for _, spec := range file.Imports {
		if spec.Path.Value == `"testing"` {
			return true
		}
	}
	return strings.HasSuffix(fset.File(file.Pos()).Name(), "_test.go")
}

// collect sets c.acquisitions, c.values and c.hasOwners. It gets the nodes of a file in their order.
func (c *checker) collect(n ast.Node) {
	switch n := n.(type) {
	case *ast.CallExpr:
		fn := c.funcOf(n)
		c.hasOwners = c.hasOwners || fn != nil && fn.FullName() == library+"/rlock.WithOwner"
	case *ast.RangeStmt:
		delete(c.values, c.variable(n.Key))
		delete(c.values, c.variable(n.Value))
	case *ast.UnaryExpr:
		if v := c.variable(n.X); v != nil && n.Op == token.AND {
			c.values[v] = nil
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			v := c.variable(name)
			if _, changed := c.values[v]; v != nil && !changed && len(n.Names) == len(n.Values) {
				c.values[v] = n.Values[i]
			}
		}
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			switch v := c.variable(to); {
			case v == nil:
			case n.Tok != token.DEFINE || v.Pos() != to.Pos():
				c.values[v] = nil
			case len(n.Lhs) == len(n.Rhs):
				c.values[v] = n.Rhs[i]
			}
		}
		call, ok := n.Rhs[0].(*ast.CallExpr)
		if !ok || len(n.Lhs) != 3 || c.release(call) == "" {
			return
		}
		a := &acquisition{assign: n, call: call}
		for i, v := range []**types.Var{&a.held, &a.hold, &a.err} {
			if *v = c.variable(n.Lhs[i]); *v == nil && !isBlank(n.Lhs[i]) {
				return // the result is assigned to a field, for example, which other functions can use
			}
		}
		c.acquisitions[n] = a
	}
}

func (c *checker) check(file *ast.File) {
	loops := map[*ast.BlockStmt]bool{} // bodies of loops
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			c.durations(n)
			c.literals(n)
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok {
				c.dropped(call, c.isDo(call))
			}
		case *ast.GoStmt:
			c.dropped(n.Call, false)
		case *ast.DeferStmt:
			c.dropped(n.Call, false)
		case *ast.AssignStmt:
			if call, ok := n.Rhs[0].(*ast.CallExpr); ok && len(n.Lhs) == 3 && isBlank(n.Lhs[2]) {
				c.dropped(call, false)
			}
		case *ast.FuncDecl:
			c.paths(n.Body, c.cfgs.FuncDecl(n), c.Pkg.Name() == "main" && n.Name.Name == "main")
		case *ast.FuncLit:
			c.paths(n.Body, c.cfgs.FuncLit(n), false)
		case *ast.ForStmt:
			loops[n.Body] = true
		case *ast.RangeStmt:
			loops[n.Body] = true
		case *ast.BlockStmt:
			c.unlocks(n.List, loops[n])
		case *ast.CaseClause:
			c.unlocks(n.Body, false)
		case *ast.CommClause:
			c.unlocks(n.Body, false)
		}
		return true
	})
}

// dropped reports call if call acquires a lock. If isDo is true, call is a Do, and dropped reports it, too.
// The caller has found that the error of call is dropped.
func (c *checker) dropped(call *ast.CallExpr, isDo bool) {
	switch {
	case isDo:
		c.report(call, call, "the error of %s is dropped, so nothing shows that the function did not run, "+
			"or that it lost the lock: check the error", c.name(call))
	case c.release(call) != "":
		c.report(call, call, "the error of %s is dropped, so the code after it may run without the lock: "+
			"check the error", c.name(call))
	}
}

// instead has the methods that call Unlock or Resign by themselves.
var instead = map[string]string{"Unlock": "Do", "Resign": "Run"}

var ignore = regexp.MustCompile(`^//lockvet:ignore\s+\S`)

func (c *checker) readComments(file *ast.File) {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if ignore.MatchString(comment.Text) {
				at := c.line(comment)
				c.hidden[at], c.hidden[line{at.file, at.number + 1}] = true, true
			}
		}
	}
}

// report reports a mistake at the node at. call is the Lock or Do that the mistake is about. If a comment
// hides the reports for the line of at or of call, or if at already has a report, report does nothing.
func (c *checker) report(call *ast.CallExpr, at ast.Node, format string, args ...any) {
	if !c.hidden[c.line(at)] && !c.hidden[c.line(call)] && !c.reported[at.Pos()] {
		c.reported[at.Pos()] = true
		c.ReportRangef(at, format, args...)
	}
}

func (c *checker) line(n ast.Node) line {
	file := c.Fset.File(n.Pos())
	return line{file, file.Line(n.Pos())}
}
