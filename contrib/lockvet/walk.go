package lockvet

import (
	"go/ast"
	"go/token"
	"slices"

	"golang.org/x/tools/go/cfg"
)

// walk calls visit for the statements and conditions that can run after the acquisition a, if a succeeds. The
// acquisition is node i of b. walk follows each path until
//   - visit returns false;
//   - the path comes back to the acquisition;
//   - the path uses the error of a in a way that walk does not understand.
func (c *checker) walk(b *cfg.Block, i int, a *acquisition, visit func(n ast.Node) bool) {
	type place struct {
		b         *cfg.Block
		unchanged bool // the variable of the error still has the error of the acquisition
	}
	seen := map[place]bool{}
	reads := func(e ast.Expr) bool { return c.mentions(e, a.err) }
	var follow func(p place, nodes []ast.Node)
	follow = func(p place, nodes []ast.Node) {
		succs := p.b.Succs
		for i, n := range nodes {
			if n == a.assign || !visit(n) {
				return
			}
			if cond, ok := n.(ast.Expr); ok && i == len(nodes)-1 && len(succs) == 2 {
				if p.unchanged {
					switch c.value(cond, a) {
					case yes:
						succs = succs[:1]
					case no:
						succs = succs[1:]
					case opaque:
						return
					}
				}
				break
			}
			switch n := n.(type) {
			case *ast.DeferStmt: // deferred code changes the error only at the end of the function
			case *ast.ExprStmt: // log.Print(err), for example
				p.unchanged = p.unchanged && !c.assigns(n, a.err)
			case *ast.AssignStmt:
				if slices.ContainsFunc(n.Rhs, reads) {
					return
				}
				p.unchanged = p.unchanged && !c.assigns(n, a.err)
			default:
				if p.unchanged && c.mentions(n, a.err) {
					return
				}
			}
		}
		for _, b := range succs {
			if next := (place{b, p.unchanged}); !seen[next] {
				seen[next] = true
				follow(next, b.Nodes)
			}
		}
	}
	follow(place{b, a.err != nil}, b.Nodes[i+1:])
}

// A verdict is the value of a condition after a successful acquisition.
type verdict int

const (
	unknown verdict = iota // the condition does not depend on the error
	yes
	no
	opaque // the condition depends on the error in a way that is not understood
)

func (c *checker) value(cond ast.Expr, a *acquisition) verdict {
	if !c.mentions(cond, a.err) {
		return unknown
	}
	switch e := ast.Unparen(cond).(type) {
	case *ast.UnaryExpr:
		return not(c.value(e.X, a)) // ! is the only unary operator of a condition
	case *ast.CallExpr:
		fn := c.funcOf(e)
		if fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == "errors" && c.variable(e.Args[0]) == a.err {
			return no // errors.Is and errors.As return false for nil
		}
	case *ast.BinaryExpr:
		isNil := c.TypesInfo.Types[e.Y].IsNil() && c.variable(e.X) == a.err
		switch {
		case e.Op == token.LAND:
			return both(c.value(e.X, a), c.value(e.Y, a))
		case e.Op == token.LOR:
			return not(both(not(c.value(e.X, a)), not(c.value(e.Y, a))))
		case e.Op == token.EQL && isNil:
			return yes
		case e.Op == token.NEQ && isNil:
			return no
		}
	}
	return opaque
}

func not(v verdict) verdict {
	switch v {
	case yes:
		return no
	case no:
		return yes
	}
	return v
}

func both(x, y verdict) verdict {
	switch {
	case x == no || y == no:
		return no
	case x == opaque || y == opaque:
		return opaque
	}
	return min(x, y) // unknown is less than yes
}
