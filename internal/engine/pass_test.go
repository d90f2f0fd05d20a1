package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/lockline/lockline/internal/testing/fake"
)

func TestAHoldPassesWithTheNextTokenWhichTheReleaseTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used any
		s := fake.Session(t, fake.Client(t, func(c fake.Call) (string, error) {
			if c.Is(kind.Acquire) {
				return "G 1000000 7", nil
			}
			used = c.Argv[5]
			return "R", nil
		}))
		m := New(s, kind, "x", Config{})
		hold := granted(t, lock(t, &m, context.Background()))
		e := hold.Of().(*Entry)
		if token := e.Pass(); token != 8 || e.Token() != 7 || e.Err() != nil {
			t.Errorf("token %d, of this entry %d, %v", token, e.Token(), e.Err())
		}
		if err := e.Unlock(context.Background()); err != nil || used != int64(8) {
			t.Errorf("%v, last used %v", err, used)
		}
	})
}
