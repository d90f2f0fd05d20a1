package engine

import (
	"slices"
	"testing"
)

// note is a recipient that records its messages.
type note struct {
	told [][]string
}

func (a *note) Key() string { return "lockline:r:{x}" }

func (a *note) OnMessage(words []string) { a.told = append(a.told, words) }

func TestAMessageGoesToTheAttemptThatItNames(t *testing.T) {
	in := newInbox(nil)
	a, b := &note{}, &note{}
	in.add("s:1", a)
	in.add("s:2", b)
	for _, m := range []string{"s:1 7 8", "s:2 9", "s:3 10", "", " ", "s:1"} {
		in.receive(m)
	}
	in.remove("s:1")
	in.receive("s:1 11")
	if want := [][]string{{"7", "8"}, {}}; !slices.EqualFunc(a.told, want, slices.Equal[[]string]) {
		t.Errorf("the first was told %q, want %q", a.told, want)
	}
	if want := [][]string{{"9"}}; !slices.EqualFunc(b.told, want, slices.Equal[[]string]) {
		t.Errorf("the second was told %q, want %q", b.told, want)
	}
	if in.find("s:1") != nil || in.find("s:2") != b {
		t.Error("Find finds another one")
	}
}
