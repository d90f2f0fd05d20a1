package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

func wantMatch(t *testing.T, text, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("%q\ndoes not match %s", text, pattern)
	}
}

func TestSharesAreShownAndFreed(t *testing.T) {
	t.Parallel()
	addr := theirRedis(t).Addr()
	rdb := testlock.Client(t, addr)
	a, b := testlock.NewSession(t, rdb, rlock.WithLabel("a")),
		testlock.NewSession(t, rdb, rlock.WithLabel("b"))
	catalog := rwlock.New(a, "catalog")
	_, r1, err := catalog.RLock(t.Context())
	testlock.Must(t, err)
	_, r2, err := rwlock.New(b, "catalog").RLock(t.Context())
	testlock.Must(t, err)
	jobs := semaphore.New(a, "jobs", 3)
	_, p1, err := jobs.Acquire(t.Context(), 2)
	testlock.Must(t, err)
	_, p2, err := jobs.Acquire(t.Context(), 1)
	testlock.Must(t, err)
	waits := make(chan error, 2)
	go func() {
		waits <- rwlock.New(b, "catalog").Do(t.Context(), func(context.Context) error { return nil })
	}()
	go func() {
		waits <- semaphore.New(b, "jobs", 3).Do(t.Context(), 2, func(context.Context) error { return nil })
	}()
	testlock.Eventually(t, "they wait", func() bool {
		st, err := catalog.Inspect(t.Context())
		testlock.Must(t, err)
		js, err := jobs.Inspect(t.Context())
		testlock.Must(t, err)
		return len(st.Queue) == 1 && len(js.Queue) == 1
	})

	ls := said(t, addr, "ls")
	wantMatch(t, ls, `catalog +rwlock +2 +\S+ +\S+ +\d+ +1 +\S+`+
		` +read: process \d+ on \S+ \([ab]\) and 1 more\n`)
	wantMatch(t, ls, `jobs +semaphore +3/3 +\S+ +\S+ +\d+ +1 +\S+`+
		` +[12] permits?: process \d+ on \S+ \(a\) and 1 more\n`)
	shown := said(t, addr, "inspect", "jobs")
	wantMatch(t, shown, `(?s)^jobs  semaphore, held\n  count    3/3\n`+
		`  holder   [12] permits?: .*, owner \S+\n +since \S+, for \S+, lease \S+, token \d+\n`+
		` +with lockline \S+, protocol \d+\n`+
		`  holder   [12] permits?: .*\n.*\n.*\n`+
		`  waiter 1   2 permits: process \d+ on \S+ \(b\), for \S+, owner \S+\n$`)
	wantMatch(t, said(t, addr, "inspect", "catalog"),
		`(?s)  holder   read: .*  holder   read: .*  waiter 1   write: `)
	states := operateJSON[[]lockState](t, addr, "ls", "jobs")
	if len(states) != 1 || states[0].Limit != 3 || states[0].Count != 3 || len(states[0].Holders) != 2 ||
		states[0].Queue[0].Permits != 2 {
		t.Errorf("%+v", states)
	}

	freed := said(t, addr, "unlock", "--force", "--token", fmt.Sprint(p1.Token()), "jobs")
	wantMatch(t, freed, `^jobs  semaphore, freed; it was held by 2 permits: .* with token `+
		fmt.Sprint(p1.Token())+`\n$`)
	wantMatch(t, said(t, addr, "unlock", "--force", "catalog"),
		`(?s)^catalog  rwlock, freed; .*read: .*\ncatalog  rwlock, freed; .*$`)
	for range 2 {
		testlock.Must(t, testlock.Receive(t, "a waiter was served", waits))
	}
	if p2.Err() != nil {
		t.Error("the other permit was freed, too")
	}
	for _, h := range []*rlock.Hold{r1, r2, p1, p2} {
		_ = h.Unlock(t.Context())
	}
	if out := said(t, addr, "ls"); strings.Contains(out, "jobs") || strings.Contains(out, "catalog") {
		t.Errorf("%s", out)
	}
}

func TestLatchesAreShown(t *testing.T) {
	t.Parallel()
	addr := theirRedis(t).Addr()
	s := testlock.NewSession(t, testlock.Client(t, addr))
	plain, parties, over := latch.New(s, "plain"), latch.New(s, "import 42"), latch.New(s, "over")
	for l, n := range map[*latch.Latch]int{plain: 2, parties: 3, over: 1} {
		_, err := l.TrySet(t.Context(), n)
		testlock.Must(t, err)
	}
	testlock.Must(t, over.CountDown(t.Context()))
	_, _, err := parties.Join(t.Context(), "worker 7")
	testlock.Must(t, err)
	_, dead, err := parties.Join(t.Context(), "worker 8")
	testlock.Must(t, err)
	testlock.Must(t, dead.Abandon(t.Context()))

	owner := s.ID() + `:\d+`
	ls := said(t, addr, "ls")
	wantMatch(t, ls, `\nimport 42 +latch +3 +0s +worker 8: `+owner+` \(dead\) and 1 more\n`)
	wantMatch(t, ls, `\nplain +latch +2\s*\n$`)
	if strings.Contains(ls, "over") {
		t.Errorf("a run that is over is listed: %s", ls)
	}
	wantMatch(t, said(t, addr, "inspect", "import 42"), `^import 42  latch, count 3\n`+
		`  party    worker 8: `+owner+` \(dead\), lease 0s\n`+
		`  party    worker 7: `+owner+`, lease \S+\n$`)
	wantMatch(t, said(t, addr, "inspect", "--kind", "latch", "plain"), `^plain  latch, count 2\n$`)
	wantMatch(t, said(t, addr, "inspect", "over"), `^over  free \(prefix lockline\)\n$`)
	states := operateJSON[[]lockState](t, addr, "ls", "import*")
	if len(states) != 1 || states[0].Held || states[0].Count != 3 || len(states[0].Holders) != 2 ||
		states[0].Holders[1].Party != "worker 7" || states[0].Holders[1].RemainingMS <= 0 {
		t.Errorf("%+v", states)
	}
	wantMatch(t, states[0].line(),
		`^latch      count 3; parties: worker 8: `+owner+` \(dead\); worker 7: `+owner+`$`)

	if out, errOut, code := operate(t, addr, "unlock", "--force", "plain"); code != exitWrong {
		t.Errorf("a latch was unlocked: exit code %d: %s%s", code, out, errOut)
	}
	if n, err := plain.Count(t.Context()); err != nil || n != 2 {
		t.Errorf("the count is %d, %v", n, err)
	}
}

func TestTheValueOfAnElectionIsShown(t *testing.T) {
	t.Parallel()
	addr := theirRedis(t).Addr()
	s := testlock.NewSession(t, testlock.Client(t, addr))
	e := election.New(s, "leader")
	_, leads, err := e.Campaign(t.Context(), "10.0.0.7:80\n")
	testlock.Must(t, err)
	wantMatch(t, said(t, addr, "inspect", "leader"),
		`(?s)^leader  fair, held\n.*\n  value    "10.0.0.7:80\\n"\n$`)
	testlock.Must(t, leads.Proclaim(t.Context(), strings.Repeat("x", 300)))
	wantMatch(t, said(t, addr, "inspect", "leader"), `\n  value    "x{200}" and 100 more bytes\n`)
	testlock.Must(t, leads.Proclaim(t.Context(), "\xff"))
	states := operateJSON[[]lockState](t, addr, "inspect", "--kind", "fair", "leader")
	if len(states) != 1 || states[0].Value == nil || string(states[0].ValueBytes) != "\xff" {
		t.Errorf("%+v", states)
	}
	wantMatch(t, states[0].line(), `^fair       held by .*, value `)
	testlock.Must(t, leads.Resign(t.Context()))
	_, plain, err := fairlock.New(s, "leader").Lock(t.Context())
	testlock.Must(t, err)
	if out := said(t, addr, "inspect", "leader"); strings.Contains(out, "value") {
		t.Errorf("a value of no leader is shown: %s", out)
	}
	testlock.Must(t, plain.Unlock(t.Context()))
}
