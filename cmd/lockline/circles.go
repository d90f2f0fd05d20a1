package main

import "slices"

// An edge leads from a session that waits for a lock to the sessions that hold this lock.
type edge struct {
	from string   // session that waits
	to   []string // sessions that hold the lock; the session that waits may be one of them
	any  bool     // the release by any one of the holders may end the wait, as with a semaphore
}

// circles returns the circles of at least two sessions. A circle is a list of indexes into edges. The
// circles, and the indexes in each circle, are in the order of edges. If the field any of an edge is true,
// the edge is part of a circle only if all other sessions that hold the lock are stuck, too.
func circles(edges []edge) (found [][]int) {
	stuck := stuckEdges(edges)
	next := map[string][]string{}
	for _, i := range stuck {
		next[edges[i].from] = append(next[edges[i].from], edges[i].to...)
	}
	group := components(next)
	at := map[int]int{} // index of each group's circle in found
	for _, i := range stuck {
		e := edges[i]
		inside := func(to string) bool { return to != e.from && group[to] == group[e.from] }
		if !slices.ContainsFunc(e.to, inside) {
			continue
		}
		g := group[e.from]
		if _, ok := at[g]; !ok {
			at[g] = len(found)
			found = append(found, nil)
		}
		found[at[g]] = append(found[at[g]], i)
	}
	return found
}

// stuckEdges returns the indexes of the edges whose waits no release can end. A session that waits for no
// lock will release its locks at some time, which can end the waits of other sessions. So stuckEdges removes
// edges whose waits can end, until it finds no more of them.
func stuckEdges(edges []edge) []int {
	stuck := make([]int, len(edges))
	for i := range stuck {
		stuck[i] = i
	}
	for {
		waits := map[string]bool{}
		for _, i := range stuck {
			waits[edges[i].from] = true
		}
		before := len(stuck)
		stuck = slices.DeleteFunc(stuck, func(i int) bool {
			e := edges[i]
			others := slices.DeleteFunc(slices.Clone(e.to), func(to string) bool { return to == e.from })
			free := func(to string) bool { return !waits[to] }
			blocks := func(to string) bool { return waits[to] }
			if e.any {
				return len(others) == 0 || slices.ContainsFunc(others, free)
			}
			return !slices.ContainsFunc(others, blocks)
		})
		if len(stuck) == before {
			return stuck
		}
	}
}

// components returns the number of the strongly connected component of each session, by Tarjan's algorithm.
// Two sessions have the same number if each can be reached from the other. next has the sessions to which the
// edges of each session lead.
func components(next map[string][]string) map[string]int {
	group, index, low := map[string]int{}, map[string]int{}, map[string]int{}
	var path []string // visited sessions that have no group yet
	var visit func(string)
	visit = func(s string) {
		index[s] = len(index) + 1
		low[s] = index[s]
		path = append(path, s)
		for _, to := range next[s] {
			if index[to] == 0 {
				visit(to)
				low[s] = min(low[s], low[to])
			} else if group[to] == 0 {
				low[s] = min(low[s], index[to])
			}
		}
		if low[s] != index[s] {
			return
		}
		for i := slices.Index(path, s); len(path) > i; path = path[:len(path)-1] {
			group[path[len(path)-1]] = index[s]
		}
	}
	for s := range next {
		if index[s] == 0 {
			visit(s)
		}
	}
	return group
}
