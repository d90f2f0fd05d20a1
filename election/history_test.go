package election

import "testing"

// Proves: election
func TestAnObserverIsShownNothingOlderThanBefore(t *testing.T) {
	at := func(token, number int64, value string) view {
		return view{Leader: Leader{Value: value, Token: token}, number: number}
	}
	var h history
	for i, step := range []struct {
		found view
		want  string // value that is shown; "-" means nothing new
	}{
		{view{}, ""},
		{view{}, "-"},
		{at(10, 1, "a"), "a"},
		{at(10, 1, "a"), "-"},
		{at(10, 3, "c"), "c"},
		{at(10, 2, "b"), "-"}, // Redis lost the last write
		{at(10, 4, "c"), "-"}, // the same value again
		{at(10, 3, "x"), "-"},
		{view{}, ""},
		{at(10, 3, "x"), "-"},
		{at(10, 5, "e"), "e"}, // the same leader again
		{at(9, 7, "old"), ""}, // a former leader
		{at(9, 8, "old"), "-"},
		{at(11, 1, "next"), "next"},
		{at(10, 9, "former"), ""},
	} {
		got := "-"
		if h.advance(step.found) {
			got = h.shown.Value
		}
		if got != step.want {
			t.Errorf("step %d shows %q, want %q", i, got, step.want)
		}
	}
}
