package lockvet

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/go/types/typeutil"
)

const library = "github.com/lockline/lockline"

// release returns the name of the method that ends the hold or the leadership that call acquires, which is
// "Unlock" or "Resign". A call acquires a hold or a leadership if its results are a context, the hold or the
// leadership, and an error. For any other call, release returns "".
func (c *checker) release(call *ast.CallExpr) string {
	results, ok := c.TypesInfo.TypeOf(call).(*types.Tuple)
	if !ok || results.Len() != 3 || !isContext(results.At(0).Type()) {
		return ""
	}
	return releaseOf(results.At(1).Type())
}

// releaseOf returns "Unlock" for *rlock.Hold, "Resign" for *election.Leadership, and "" for another type.
func releaseOf(t types.Type) string {
	switch {
	case isPointer(t, library+"/rlock", "Hold"):
		return "Unlock"
	case isPointer(t, library+"/election", "Leadership"):
		return "Resign"
	}
	return ""
}

// hasLease reports whether e may set a fixed lease, so that the lock needs no Unlock. The expression e is an
// option, a lock, or a call that gets options and locks. For a lock that other code has made, hasLease
// returns unseen. For an option from other code, and for a variable that is assigned again, it returns true.
func (c *checker) hasLease(e ast.Expr, unseen bool) bool {
	t := c.TypesInfo.TypeOf(e)
	if _, basic := t.Underlying().(*types.Basic); basic || isContext(t) || isSession(t) || isQuorum(t) {
		return false
	}
	if value, known := c.values[c.variable(e)]; known {
		return value == nil || c.hasLease(value, unseen)
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return unseen || isOptions(t)
	}
	fn := c.funcOf(call)
	known := fn != nil && fn.Pkg() != nil && path.Dir(fn.Pkg().Path()) == library
	if known && fn.Name() == "WithLease" || !known && (unseen || isOptions(t)) {
		return true
	}
	operands := slices.Clone(call.Args)
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok && c.TypesInfo.Selections[sel] != nil {
		operands = append(operands, sel.X)
	}
	return slices.ContainsFunc(operands, func(e ast.Expr) bool { return c.hasLease(e, unseen) })
}

// isDo reports whether call runs a function under a lock, like Do of a lock and Run of an election. The first
// argument of such a call is a context.
func (c *checker) isDo(call *ast.CallExpr) bool {
	fn := c.funcOf(call)
	if fn == nil || fn.Pkg() == nil || path.Dir(fn.Pkg().Path()) != library || len(call.Args) < 2 {
		return false
	}
	params := fn.Signature().Params()
	for p := range params.Variables() {
		f, ok := p.Type().(*types.Signature)
		if ok && f.Params().Len() == 1 && isContext(f.Params().At(0).Type()) && f.Results().Len() == 1 {
			return isContext(params.At(0).Type())
		}
	}
	return false
}

// reader matches the names of functions that read a value from a context. They may return an error.
var reader = regexp.MustCompile(`^Ctx$|[Ff]rom\w*(Context|Ctx)`)

// needsHeld reports whether call, if it runs under a lock, needs the context of the hold. sig is the
// signature of the function that it calls. The package comment lists the calls for which needsHeld returns
// false. The functions of package context also do not need the hold.
func (c *checker) needsHeld(call *ast.CallExpr, sig *types.Signature) bool {
	fn := c.funcOf(call)
	isBasic, hasError := true, false
	for result := range sig.Results().Variables() {
		_, ok := result.Type().Underlying().(*types.Basic)
		isBasic = isBasic && ok
		hasError = hasError || types.Implements(result.Type(), errorType)
	}
	switch {
	case isBasic && !hasError:
		return false
	case fn == nil || fn.Pkg() == nil:
		return true
	case fn.Pkg().Path() == "context" || reader.MatchString(fn.Name()):
		return false
	}
	if recv := fn.Signature().Recv(); recv != nil {
		return releaseOf(recv.Type()) == "" && !isSession(recv.Type())
	}
	return hasError || sig.Params().Len() > 1 ||
		strings.HasPrefix(fn.Name(), "With") && !strings.HasPrefix(fn.Name(), "Without")
}

var errorType = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

// durations reports the numbers without a unit that call passes to Lockline as durations. It reports only
// numbers below a million, which would be less than 1 ms, because a larger number may be meant in
// nanoseconds.
func (c *checker) durations(call *ast.CallExpr) {
	fn := c.funcOf(call)
	if fn == nil || fn.Pkg() == nil || !fn.Exported() || !strings.HasPrefix(fn.Pkg().Path(), library+"/") {
		return
	}
	params := fn.Signature().Params()
	for i, arg := range call.Args {
		if i >= params.Len() || !isNamed(params.At(i).Type(), "time", "Duration") || !c.lacksUnit(arg) {
			continue
		}
		n, exact := constant.Int64Val(constant.ToInt(c.TypesInfo.Types[arg].Value))
		if exact && 0 < n && n < int64(time.Millisecond) {
			c.report(call, arg, "%s has no unit, so %s gets %v: multiply it by time.Second, or by another "+
				"unit", types.ExprString(arg), fn.Name(), time.Duration(n))
		}
	}
}

// lacksUnit reports whether e consists only of numbers, and of constants whose type is not time.Duration.
func (c *checker) lacksUnit(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.BasicLit:
		return true
	case *ast.UnaryExpr:
		return c.lacksUnit(e.X)
	case *ast.BinaryExpr:
		return c.lacksUnit(e.X) && c.lacksUnit(e.Y)
	case *ast.SelectorExpr:
		return c.lacksUnit(e.Sel)
	case *ast.Ident:
		constant, ok := c.TypesInfo.ObjectOf(e).(*types.Const)
		return ok && !isNamed(constant.Type(), "time", "Duration")
	}
	return false
}

func isContext(t types.Type) bool { return isNamed(t, "context", "Context") }

func isSession(t types.Type) bool { return isPointer(t, library+"/rlock", "Session") }

func isQuorum(t types.Type) bool { return isPointer(t, library+"/multilock", "Quorum") }

// isOptions reports whether t is rlock.Option or a slice of it.
func isOptions(t types.Type) bool {
	if s, ok := t.Underlying().(*types.Slice); ok {
		t = s.Elem()
	}
	return isNamed(t, library+"/rlock", "Option")
}

func isPointer(t types.Type, pkg, name string) bool {
	p, ok := types.Unalias(t).(*types.Pointer)
	return ok && isNamed(p.Elem(), pkg, name)
}

func isNamed(t types.Type, pkg, name string) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Name() == name && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == pkg
}

// funcOf returns the function or method that call calls. It returns nil for a value of a function type.
func (c *checker) funcOf(call *ast.CallExpr) *types.Func {
	fn, _ := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	return fn
}

// name returns the name of the function of call, for a report.
func (c *checker) name(call *ast.CallExpr) string {
	if fn := c.funcOf(call); fn != nil {
		return fn.Name()
	}
	return types.ExprString(call.Fun)
}

// method returns the name of the method of v that call calls. It returns "" for another call.
func (c *checker) method(call *ast.CallExpr, v *types.Var) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok && v != nil && c.variable(sel.X) == v {
		return sel.Sel.Name
	}
	return ""
}

// variable returns the variable that e names. It returns nil for the blank identifier and for other
// expressions.
func (c *checker) variable(e ast.Expr) *types.Var {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok || isBlank(id) {
		return nil
	}
	v, _ := c.TypesInfo.ObjectOf(id).(*types.Var)
	return v
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// root returns the variable with which e begins. For example, it returns r for r.Context(), and s for s.ctx.
// It returns nil for other expressions.
func (c *checker) root(e ast.Expr) *types.Var {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return c.variable(e)
	case *ast.SelectorExpr:
		return c.root(e.X)
	case *ast.CallExpr:
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok && len(e.Args) == 0 {
			return c.root(sel)
		}
	}
	return nil
}

// mentions reports whether n names v.
func (c *checker) mentions(n ast.Node, v *types.Var) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && v != nil && c.variable(id) == v
		return !found
	})
	return found
}

// assigns reports whether n assigns to v or to a part of v.
func (c *checker) assigns(n ast.Node, v *types.Var) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok {
			for _, to := range assign.Lhs {
				found = found || v != nil && c.root(to) == v
			}
		}
		return !found
	})
	return found
}

// releases returns the variables of the holds that n certainly unlocks. It leaves out function literals, the
// right operands of && and ||, and method values such as hold.Unlock, because these may not run.
func (c *checker) releases(n ast.Node) (holds []*types.Var) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				holds = append(holds, c.releases(n.X)...)
				return false
			}
		case *ast.CallExpr:
			if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok {
				if v := c.variable(sel.X); v != nil && sel.Sel.Name == releaseOf(v.Type()) {
					holds = append(holds, v)
				}
			}
		}
		return true
	})
	return holds
}
