package election_test

import (
	"os"
	"strings"
	"testing"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testlock"
	"github.com/lockline/lockline/internal/testredis"
)

func TestTheDocumentedRightsSufficeForElections(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operations.md")
	testlock.Must(t, err)
	_, rules, _ := strings.Cut(string(text), "```\nACL SETUSER lockline ")
	rules, _, _ = strings.Cut(rules, "```")
	var rights []any
	for _, rule := range strings.Fields(rules) {
		if rule != "on" && !strings.HasPrefix(rule, ">") { // that User adds
			rights = append(rights, rule)
		}
	}
	server := testredis.Start(t)
	rdb := testlock.User(t, server, "lockline", rights...)
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
