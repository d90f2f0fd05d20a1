package election_test

import (
	"testing"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestTheDocumentedRightsSufficeForElections(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := testlock.DocumentedUser(t, server)
	e := election.New(testlock.NewSession(t, rdb), "x")
	w := observe(t, e)
	w.seesAtLast(0, "")
	_, l := lead(t, e, "one")
	w.seesAtLast(l.Token(), "one")
	testlock.Must(t, l.Proclaim(bg, "two"))
	w.seesAtLast(l.Token(), "two")
	if all := candidates(t, e); len(all) != 1 {
		t.Errorf("%+v", all)
	}
	resign(t, l)
	w.seesAtLast(0, "")
}
