package protocol

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

var script = wire.NewScript("return 'R'")

func TestCopiesOfASameAreTheSame(t *testing.T) {
	x := keys(t, "x")
	s := &FixedRequest{Script: script, Keys: x, Argv: []any{"a:1", 5}}
	want := []any{"evalsha", script.Digest(), 1, x.LockKey(), "a:1", 5}
	for _, now := range []time.Time{{}, time.Now()} {
		if got := s.Request(now).Args(); !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestOnlyAReleaseThatCanDoWithoutTheQueueNamesLessWhileItsSlotMoves(t *testing.T) {
	moving := fmt.Errorf("a hook: %w", reply("TRYAGAIN Multiple keys request during rehashing of slot"))
	other := reply("LOADING")
	for _, c := range []struct {
		what   string
		queued bool
		more   []any // keys
		failed []error
		keys   []int // number of keys of each copy
	}{
		{"with a queue", true, nil, []error{moving, moving, other}, []int{3, 1, 3, 3}},
		{"with permits", true, []any{"x:h"}, []error{moving, moving, moving, moving}, []int{4, 1, 4, 4, 1}},
		{"with another third key", false, nil, []error{moving, moving}, []int{3, 3, 3}},
	} {
		r := &FixedRequest{Script: wire.NewScript("return 1"),
			Keys: &Keys{Queued: c.queued, boxed: append([]any{"x", "x:q", "x:w"}, c.more...), few: 1}}
		var got []int
		for i := range c.keys {
			if i > 0 {
				r.Failed(c.failed[i-1])
			}
			args := r.Request(time.Time{}).Args()
			if n := args[2].(int); n == 4 && (args[6] == "x:h") != (i%3 == 0) {
				t.Errorf("%s: copy %d names %v", c.what, i, args)
			}
			got = append(got, args[2].(int))
		}
		if !slices.Equal(got, c.keys) {
			t.Errorf("%s: %v keys, want %v", c.what, got, c.keys)
		}
	}
}
