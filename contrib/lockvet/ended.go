package lockvet

import (
	"go/ast"
	"go/types"
	"slices"
)

// unlocks reports where the context of a hold is passed on after the Unlock. It looks at the statements of
// list after the Unlock. If list is the body of a loop, it also looks at the statements before the Unlock,
// because they run again.
func (c *checker) unlocks(list []ast.Stmt, isLoop bool) {
	for i, statement := range list {
		for _, hold := range c.unlockedBy(statement) {
			a := c.acquisitionOf(hold, statement)
			if a == nil || a.held == nil {
				continue
			}
			after := slices.Concat(inner(statement), list[i+1:])
			if isLoop && !leaves(list[len(list)-1]) {
				after = append(after, list[:i]...)
			}
			c.ended(a, after, c.line(statement).number)
		}
	}
}

// unlockedBy returns the variables of the holds that statement unlocks on each of its branches.
func (c *checker) unlockedBy(statement ast.Stmt) []*types.Var {
	switch s := statement.(type) {
	case *ast.ExprStmt, *ast.AssignStmt, *ast.GoStmt:
		return c.releases(s)
	case *ast.IfStmt:
		if s.Init != nil {
			return slices.Concat(c.releases(s.Init), c.releases(s.Cond))
		}
		return c.releases(s.Cond)
	}
	return nil
}

// inner returns the branches of an if statement, which run after an Unlock in its condition. It returns nil
// for other statements.
func inner(statement ast.Stmt) (list []ast.Stmt) {
	if s, ok := statement.(*ast.IfStmt); ok {
		list = append(list, s.Body)
		if s.Else != nil {
			list = append(list, s.Else)
		}
	}
	return list
}

// leaves reports whether every path through statement may leave the list of statements. It returns true for a
// continue, because the label of the continue may name an outer loop. It also returns true for a statement
// with several branches, because each branch may end in a return.
func leaves(statement ast.Stmt) bool {
	switch s := statement.(type) {
	case *ast.ReturnStmt, *ast.BranchStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
		return true
	case *ast.IfStmt:
		return s.Else != nil
	}
	return false
}

// acquisitionOf returns the last acquisition of hold before statement. It returns nil if there is none.
func (c *checker) acquisitionOf(hold *types.Var, statement ast.Stmt) (last *acquisition) {
	for _, a := range c.acquisitions {
		before := a.hold == hold && a.assign.Pos() < statement.Pos()
		if before && (last == nil || last.assign.Pos() < a.assign.Pos()) {
			last = a
		}
	}
	return last
}

// ended reports where the statements of list pass on the context that a has returned. The hold of a was
// unlocked in the line unlockedIn. ended stops at a statement that assigns another context to the variable of
// the context.
func (c *checker) ended(a *acquisition, list []ast.Stmt, unlockedIn int) {
	held := c.newContexts(a.assign.Lhs[0])
	for _, statement := range list {
		changed := c.assigns(statement, a.held)
		if _, simple := statement.(*ast.AssignStmt); changed && !simple {
			return
		}
		c.passed(statement, held, func(arg ast.Expr) {
			c.report(a.call, arg, "%s has ended with the %s in line %d: pass on the context from before "+
				"the %s, or move this call before the %[2]s",
				types.ExprString(arg), c.release(a.call), unlockedIn, c.name(a.call))
		})
		if changed {
			return
		}
	}
}
