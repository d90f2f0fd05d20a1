package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// edgesOf parses edges. In "a>b,c", a waits for both b and c. In "a?b,c", a waits for one of them.
func edgesOf(text string) (edges []edge) {
	for field := range strings.FieldsSeq(text) {
		i := strings.IndexAny(field, ">?")
		edges = append(edges, edge{field[:i], strings.Split(field[i+1:], ","), field[i] == '?'})
	}
	return edges
}

func TestCirclesAreFoundAndNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		edges string
		want  [][]int
	}{
		"nobody waits":                        {"", nil},
		"one waits":                           {"a>b", nil},
		"a queue":                             {"a>d b>d c>d", nil},
		"a chain":                             {"a>b b>c c>d", nil},
		"two":                                 {"a>b b>a", [][]int{{0, 1}}},
		"three, and others that wait for one": {"x>a a>b b>c c>a y>x", [][]int{{1, 2, 3}}},
		"two circles, with a wait between":    {"a>b c>d b>a d>c b>c", [][]int{{0, 2}, {1, 3}}},
		"two circles that share a session":    {"a>b b>a b>c c>b", [][]int{{0, 1, 2, 3}}},
		"a way out of another goroutine":      {"a>b b>a b>free", [][]int{{0, 1}}},
		"a session that waits for itself":     {"a>a", nil},
		"for itself and another":              {"a>a,b b>a", [][]int{{0, 1}}},
		"another waits for such a session":    {"b>a a>a", nil},
		"two waits of one session":            {"a>b a>b b>a", [][]int{{0, 1, 2}}},
		"all readers, of which one waits":     {"w>r,s r>w", [][]int{{0, 1}}},
		"one permit, whose holder waits":      {"a?b b>a", [][]int{{0, 1}}},
		"one permit of a holder that is free": {"a?b,free b>a", nil},
		"one permit, whose holders all wait":  {"a?b,c b>a c>a", [][]int{{0, 1, 2}}},
		"a holder that waits for one that is free": {"a?b,c b>a c>free",
			nil},
		"a holder that is stuck elsewhere": {"a?b,c b>a c>d d>c", [][]int{{0, 1}, {2, 3}}},
		"one permit, of which it has one":  {"a?a,b b>a", [][]int{{0, 1}}},
		"one permit, and it has all":       {"a?a b>a", nil},
	} {
		if got := circles(edgesOf(test.edges)); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestALongCircleIsOne(t *testing.T) {
	const n = 2000
	var edges []edge
	for i := range n {
		edges = append(edges, edge{from: fmt.Sprint(i), to: []string{fmt.Sprint((i + 1) % n)}})
	}
	slices.Reverse(edges)
	if got := circles(edges); len(got) != 1 || len(got[0]) != n {
		t.Errorf("%d circles", len(got))
	}
}
