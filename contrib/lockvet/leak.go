package lockvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/cfg"
)

// paths checks the paths of a function that begin at an acquisition. g is nil if the function has no body, or
// if its name is blank.
func (c *checker) paths(body *ast.BlockStmt, g *cfg.CFG, isMain bool) {
	if g == nil {
		return
	}
	for _, b := range g.Blocks {
		for i, n := range b.Nodes {
			a := c.acquisitions[n]
			if a == nil || !b.Live {
				continue
			}
			if a.hold != nil && (a.hold.Pos() < body.Pos() || body.End() < a.hold.Pos()) {
				continue // other functions can use the variable of the hold
			}
			if a.hold == nil && c.release(a.call) == "Unlock" && c.hasLease(a.call, true) {
				continue // a fixed lease needs no Unlock; for example, it limits how often a function runs
			}
			if !isMain && !c.endsElsewhere(body, a) {
				c.leak(b, i, a)
			}
			if !c.escapes(body, a.hold) {
				c.outer(b, i, a)
			}
		}
	}
}

// leak reports a hold that is discarded, or a path to a return on which the hold is not unlocked. Any use of
// the hold's variable counts as an Unlock, except for a call of another method, such as Token. A lock from
// elsewhere counts as a lock without a fixed lease, because code that names a hold usually unlocks it.
func (c *checker) leak(b *cfg.Block, i int, a *acquisition) {
	release := c.release(a.call)
	switch {
	case a.hold == nil:
		c.report(a.call, a.assign.Lhs[1],
			"the result that ends this %s is discarded, so the lock stays held: "+
				"name the result and defer its %s, or use %s", c.name(a.call), release, instead[release])
		return
	case c.hasLease(a.call, false):
		return
	}
	c.walk(b, i, a, func(n ast.Node) bool {
		if c.uses(n, a.hold) {
			return false
		}
		if ret, ok := n.(*ast.ReturnStmt); ok {
			c.report(a.call, a.assign.Lhs[1], "%s has no %s before the return in line %d: defer the %[2]s "+
				"after the check of the error, or use %[4]s",
				a.hold.Name(), release, c.line(ret).number, instead[release])
		}
		return true
	})
}

// uses reports whether n uses the variable of a hold. The call of a method that does not end the hold is no
// use.
func (c *checker) uses(n ast.Node, hold *types.Var) (used bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			method := c.method(n, hold)
			if ast.IsExported(method) && method != releaseOf(hold.Type()) {
				return false
			}
		case *ast.Ident:
			used = used || hold != nil && c.variable(n) == hold
		}
		return !used
	})
	return used
}

// endsElsewhere reports whether other code of the function may end the hold. This code is a function literal
// before the acquisition that uses the variable of the hold, or a Close or Shutdown of a session.
func (c *checker) endsElsewhere(body *ast.BlockStmt, a *acquisition) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			found = found || n.Pos() < a.assign.Pos() && c.mentions(n, a.hold)
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			ends := ok && (sel.Sel.Name == "Close" || sel.Sel.Name == "Shutdown")
			found = found || ends && isSession(c.TypesInfo.TypeOf(sel.X))
		}
		return !found
	})
	return found
}

// escapes reports whether other code may unlock the hold at any time. This is so if a function literal
// captures the variable of the hold, or if the variable is stored, returned or passed to a function. Deferred
// code does not count, because it runs only at the end of the function.
func (c *checker) escapes(body *ast.BlockStmt, hold *types.Var) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeferStmt:
			return false
		case *ast.AssignStmt:
			return c.acquisitions[n] == nil
		case *ast.FuncLit:
			found = found || c.mentions(n, hold)
		case *ast.CallExpr:
			return c.method(n, hold) == ""
		case *ast.Ident:
			found = found || hold != nil && c.TypesInfo.Uses[n] == hold
		}
		return !found
	})
	return found
}
