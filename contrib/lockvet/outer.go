package lockvet

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/cfg"
)

// effect is the part of a report that describes the harm of a context from outside.
const effect = "does not end with the lock, and a Lock of the same name waits for its own caller"

// literals reports where a function literal of a Do passes on the context that the Do itself was given. It
// does nothing if the call do is not a Do.
func (c *checker) literals(do *ast.CallExpr) {
	if !c.isDo(do) || c.hasOwners {
		return
	}
	outer := do.Args[0]
	root := c.root(outer)
	for _, arg := range do.Args[1:] {
		lit, ok := ast.Unparen(arg).(*ast.FuncLit)
		if !ok || root == nil || c.assigns(lit.Body, root) {
			continue
		}
		remedy := "name the parameter of the function, and pass it on"
		for _, field := range lit.Type.Params.List {
			if len(field.Names) > 0 && !isBlank(field.Names[0]) {
				remedy = "pass on " + field.Names[0].Name
			}
		}
		c.passed(lit.Body, c.newContexts(outer), func(arg ast.Expr) {
			c.report(do, arg, "%s comes from outside of this %s, so it %s: %s",
				types.ExprString(arg), c.name(do), effect, remedy)
		})
	}
}

// outer reports where the context that a Lock was given is passed on before the Unlock. The acquisition a is
// node i of b.
func (c *checker) outer(b *cfg.Block, i int, a *acquisition) {
	at := slices.IndexFunc(a.call.Args, func(e ast.Expr) bool { return isContext(c.TypesInfo.TypeOf(e)) })
	if at < 0 || c.hasOwners {
		return
	}
	outer := a.call.Args[at]
	root := c.root(outer)
	if root == nil || root == a.held {
		return // the context is context.Background(), for example, or the Lock overwrites its variable
	}
	remedy := "pass on the context that it returned, which is discarded here"
	if a.held != nil {
		remedy = "pass on " + a.held.Name()
	}
	contexts := c.newContexts(outer)
	c.walk(b, i, a, func(n ast.Node) bool {
		if _, ok := n.(*ast.DeferStmt); ok {
			return true
		}
		c.passed(n, contexts, func(arg ast.Expr) {
			c.report(a.call, arg, "%s is from before this %s, so it %s: %s",
				types.ExprString(arg), c.name(a.call), effect, remedy)
		})
		return (!c.assigns(n, root) || contexts.derived[root]) && !c.uses(n, a.hold)
	})
}

// contexts has a context, in the field first, and the variables whose contexts are derived from that context.
type contexts struct {
	first   ast.Expr
	derived map[*types.Var]bool
}

func (c *checker) newContexts(first ast.Expr) contexts {
	return contexts{first, map[*types.Var]bool{}}
}

// has reports whether e is one of the contexts of s, or is derived from one of them.
func (c *checker) has(s contexts, e ast.Expr) bool {
	if v := c.variable(e); v != nil && s.derived[v] {
		return true
	}
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		if fn := c.funcOf(call); fn != nil && strings.HasPrefix(fn.FullName(), "context.With") {
			return fn.Name() != "WithoutCancel" && c.has(s, call.Args[0])
		}
	}
	return c.root(e) == c.root(s.first) && types.ExprString(e) == types.ExprString(s.first)
}

// passed calls onFound with each argument in n that is one of the contexts of s. It leaves out arguments of
// calls that may have any context, and code that runs later or in another goroutine. If n assigns a context
// to a variable, passed updates s.
func (c *checker) passed(n ast.Node, s contexts, onFound func(arg ast.Expr)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.DeferStmt, *ast.FuncLit:
			return false
		case *ast.AssignStmt:
			if v := c.variable(n.Lhs[0]); v != nil {
				s.derived[v] = c.has(s, n.Rhs[0])
			}
		case *ast.CallExpr:
			if c.isDo(n) {
				for _, arg := range n.Args {
					if lit, ok := ast.Unparen(arg).(*ast.FuncLit); ok {
						c.passed(lit.Body, s, onFound)
					}
				}
			}
			sig, ok := c.TypesInfo.TypeOf(n.Fun).Underlying().(*types.Signature)
			if !ok || !c.needsHeld(n, sig) {
				return true
			}
			for i, arg := range n.Args {
				if i < sig.Params().Len() && isContext(sig.Params().At(i).Type()) && c.has(s, arg) {
					onFound(arg)
				}
			}
		}
		return true
	})
}
