package protocol

import (
	"reflect"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

var script = wire.NewScript("return 'R'")

// sent are the arguments of a request for script.
func sent(argv ...any) []any { return append([]any{"evalsha", script.Digest()}, argv...) }

func TestAReleaseSaysWhichGrantEndsAndWhatOfItWasUsed(t *testing.T) {
	x := keys(t, "x")
	for _, c := range []struct {
		grant Grant
		want  []any // of late and used
	}{
		{Grant{Owner: "a:1", Token: "5"}, []any{"0", "0"}},
		{Grant{Owner: "a:1", Token: "5", Used: int64(7), Late: 9}, []any{int64(9), int64(7)}},
		{Grant{Owner: "a:1", Token: "5", Used: "5"}, []any{"0", "5"}},
	} {
		r := &Release{Script: script, Keys: x, Grant: c.grant, Keep: "60000"}
		want := sent(append([]any{2, x.Lock(), x.Metadata(), "a:1", "5", x.Channel, "60000"}, c.want...)...)
		for range 2 {
			for _, now := range []time.Time{{}, time.Now()} { // all copies are the same
				if got := r.Request(now).Args(); !reflect.DeepEqual(got, want) {
					t.Errorf("%+v: %v, want %v", c.grant, got, want)
				}
			}
		}
	}
}

func TestAnUnnamedGrantIsAllThatItsAttemptWasGranted(t *testing.T) {
	g := Grant{Owner: "a:1", Token: "5", Used: int64(7), Late: 9}
	if got, want := g.Unnamed(), (Grant{Owner: "a:1", Token: "", Used: "", Late: 9}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if g.Token != "5" || g.Used != int64(7) {
		t.Errorf("the grant became %+v", g)
	}
}

func TestCopiesOfASameAreTheSame(t *testing.T) {
	x := keys(t, "x")
	s := &Same{Script: script, Keys: x, Argv: []any{"a:1", 5}}
	want := sent(2, x.Lock(), x.Metadata(), "a:1", 5)
	for _, now := range []time.Time{{}, time.Now()} {
		if got := s.Request(now).Args(); !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
