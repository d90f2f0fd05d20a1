package latch_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

// semantics has tests of latches without faults. Each test has one latch in three sessions. The tests run in
// fake time, and on a real server, because the server in memory has another Lua.
var semantics = map[string]func(t *testing.T, rdb *redis.Client, ls []*latch.Latch){
	"the count is set only if none is running":       testSet,
	"counting down below zero is harmless":           testBelowZero,
	"a party counts once":                            testPartyOnce,
	"abandon and close tell waiters at once":         testAbandon,
	"a party takes over the name of a dead one":      testTakeOver,
	"there are no more parties than counts":          testParties,
	"waiters of a deleted latch are told":            testDelete,
	"inspect shows the count and the parties":        testInspect,
	"an odd value is an error that names the key":    testOddValues,
	"a hash of another program is no latch":          testForeign,
	"a lease that has ended is not renewed":          testEndedLease,
	"a canceled join is undone, but ends no death":   testCanceled,
	"a late request says whether an earlier one ran": testLate,
}

// Proves: latch
func TestALatch(t *testing.T) {
	for what, test := range semantics {
		t.Run(what, func(t *testing.T) {
			simulated(t, 3, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) { test(t, w.Client, ls) })
		})
	}
}

func testSet(t *testing.T, _ *redis.Client, ls []*latch.Latch) {
	a, b := ls[0], ls[1]
	wantCount(t, a, 0)
	for n := 1; n <= 3; n++ {
		set(t, a, n)
		if set, err := b.TrySet(bg, 5); err != nil || set {
			t.Errorf("the second TrySet: %v, %v", set, err)
		}
		for left := n; left > 0; left-- {
			wantCount(t, b, left)
			countDown(t, b)
		}
		wantCount(t, a, 0)
	}
	set(t, a, int(min(9e15, math.MaxInt)))
	wantCount(t, a, int(min(9e15, math.MaxInt)))
}

func testBelowZero(t *testing.T, _ *redis.Client, ls []*latch.Latch) {
	l := ls[0]
	countDown(t, l) // no count was set
	set(t, l, 1)
	for range 3 {
		countDown(t, l)
		wantCount(t, l, 0)
	}
	testlock.Must(t, l.CountDownAndWait(bg))
	set(t, l, 2)
	wantCount(t, l, 2)
}

func testPartyOnce(t *testing.T, rdb *redis.Client, ls []*latch.Latch) {
	set(t, ls[0], 2)
	ctx, p := join(t, ls[0], "p")
	if p.Name() != "p" || ctx.Err() != nil {
		t.Errorf("%s: %v", p.Name(), ctx.Err())
	}
	wantCount(t, ls[1], 2)
	for range 3 {
		testlock.Must(t, p.CountDown(bg))
		testlock.Must(t, p.Abandon(bg))
	}
	if context.Cause(ctx) != context.Canceled {
		t.Errorf("after CountDown its context has the cause %v", context.Cause(ctx))
	}
	wantCount(t, ls[1], 1)
	done := listening(t, rdb, ls[1], 1)
	_, q := join(t, ls[0], "p")
	testlock.Must(t, q.CountDown(bg))
	ended(t, done, nil)
	testlock.Must(t, p.CountDown(bg))
	wantCount(t, ls[1], 0)
}

func testAbandon(t *testing.T, rdb *redis.Client, ls []*latch.Latch) {
	for _, what := range []string{"Abandon", "Close"} {
		set(t, ls[0], 1)
		s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(time.Hour)) // too long to end in a test
		ctx, p := join(t, latch.New(s, "x"), what)
		done := listening(t, rdb, ls[1], 1)
		leave := s.Close
		if what == "Abandon" {
			leave = func() error { return p.Abandon(bg) }
		}
		testlock.Must(t, leave())
		diedAs(t, "Wait", testlock.Receive(t, "told", done), what)
		testlock.Receive(t, "its context", ctx.Done())
		if what == "Close" {
			testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrClosed)
		}
		wantDeleted(t, ls[0], true)
	}
}

func testTakeOver(t *testing.T, rdb *redis.Client, ls []*latch.Latch) {
	set(t, ls[0], 1)
	first, p := join(t, ls[0], "p")
	if _, _, err := ls[1].Join(bg, "p"); !errors.Is(err, latch.ErrPartyExists) {
		t.Errorf("Join beside a living one: %v", err)
	}
	testlock.Must(t, p.Abandon(bg))
	diedAs(t, "the cause", context.Cause(first), "p")
	_, q := join(t, ls[1], "p")
	done := listening(t, rdb, ls[2], 1)
	diedAs(t, "CountDown of the dead one", p.CountDown(bg), "p")
	wantCount(t, ls[0], 1)
	testlock.Must(t, q.CountDown(bg))
	ended(t, done, nil)
}

func testParties(t *testing.T, _ *redis.Client, ls []*latch.Latch) {
	l := ls[0]
	refused := func(when string) {
		t.Helper()
		_, _, err := l.Join(bg, "r")
		testlock.WantError(t, "Join "+when, err, latch.ErrNoCount)
	}
	refused("where none is set")
	set(t, l, 2)
	_, p := join(t, l, "p")
	_, q := join(t, l, "q")
	refused("of a third")
	testlock.Must(t, p.CountDown(bg))
	refused("where the last count is taken")
	testlock.Must(t, q.CountDown(bg))
	wantCount(t, l, 0)
}

func testDelete(t *testing.T, rdb *redis.Client, ls []*latch.Latch) {
	a, b := ls[0], ls[1]
	wantDeleted(t, a, false)
	set(t, a, 2)
	both := make(chan error, 1)
	go func() { both <- b.CountDownAndWait(bg) }()
	testlock.Eventually(t, "counted", func() bool { n, _ := a.Count(bg); return n == 1 })
	done := listening(t, rdb, ls[2], 2)
	wantDeleted(t, a, true)
	ended(t, done, latch.ErrDeleted)
	ended(t, both, latch.ErrDeleted)
	wantCount(t, b, 0)
	testlock.Must(t, b.Wait(bg))
	wantDeleted(t, a, false)
	set(t, a, 1)
	countDown(t, a)
	wantDeleted(t, a, false)
	testlock.Must(t, a.Wait(bg)) // the last run ended at 0
}

func inspect(t testing.TB, l *latch.Latch) latch.State {
	t.Helper()
	st, err := l.Inspect(bg)
	testlock.Must(t, err)
	return st
}

func testInspect(t *testing.T, _ *redis.Client, ls []*latch.Latch) {
	if st := inspect(t, ls[0]); st.Name != "x" || st.Count != 0 || len(st.Parties) != 0 {
		t.Errorf("of none: %+v", st)
	}
	set(t, ls[0], 4)
	names := []string{"1 x 1 y", "a", "two words\nand 3 lines "}
	parties := map[string]*latch.Party{}
	for i, name := range names {
		_, parties[name] = join(t, ls[i%2], name)
	}
	testlock.Must(t, parties["a"].Abandon(bg))
	st := inspect(t, ls[1])
	var shown []string
	for _, p := range st.Parties {
		shown = append(shown, p.Name)
		if !strings.HasPrefix(p.Owner, p.Session+":") || p.Remaining < 0 || p.Remaining > 30*time.Second ||
			(p.Remaining == 0) != (p.Name == "a") {
			t.Errorf("%+v", p)
		}
	}
	if st.Count != 4 || shown[0] != "a" {
		t.Errorf("the first to end is not the first: %+v", st)
	}
	if slices.Sort(shown); !slices.Equal(shown, names) {
		t.Errorf("%q, want %q", shown, names)
	}
	testlock.Must(t, parties["1 x 1 y"].CountDown(bg))
	if st := inspect(t, ls[0]); st.Count != 3 || len(st.Parties) != 2 {
		t.Errorf("after a party has counted: %+v", st)
	}
}

func testOddValues(t *testing.T, rdb *redis.Client, ls []*latch.Latch) {
	l, key := ls[0], keyOf(rdb)
	odd := func() {
		t.Helper()
		_, inspected := l.Inspect(bg)
		for i, err := range []error{l.CountDown(bg), l.Wait(bg), inspected} {
			if err == nil || !strings.Contains(err.Error(), key) ||
				strings.Contains(err.Error(), "lock by force") {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
	set(t, l, 2)
	testlock.Must(t, rdb.HSet(bg, key, "n", "many").Err())
	odd()
	wantDeleted(t, l, true)
	if testlock.Prefix(rdb) != "lockline" { // the errors of miniredis do not name such a key
		testlock.Must(t, rdb.Set(bg, key, "a string", 0).Err())
		odd()
	}
}

func testForeign(t *testing.T, rdb *redis.Client, ls []*latch.Latch) {
	l, key := ls[0], keyOf(rdb)
	testlock.Must(t, rdb.HSet(bg, key, "foo", "bar").Err())
	for name, call := range map[string]func() error{
		"TrySet":    func() error { _, err := l.TrySet(bg, 2); return err },
		"CountDown": func() error { return l.CountDown(bg) },
		"Delete":    func() error { _, err := l.Delete(bg); return err },
		"Join":      func() error { _, _, err := l.Join(bg, "p"); return err },
		"Wait":      func() error { return l.Wait(bg) },
		"Inspect":   func() error { _, err := l.Inspect(bg); return err },
	} {
		err := call()
		if err == nil || !strings.Contains(err.Error(), key) ||
			!strings.Contains(err.Error(), `it has the field "foo" and no field "w"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, ttl := rdb.HGetAll(bg, key).Val(), rdb.TTL(bg, key).Val()
	if len(left) != 1 || left["foo"] != "bar" || ttl >= 0 {
		t.Errorf("the hash became %v, and expires in %v", left, ttl)
	}
	testlock.Must(t, rdb.Del(bg, key).Err())
	set(t, l, 1)
	countDown(t, l)
	set(t, l, 1) // now the hash has only the end of the last run
	countDown(t, l)
}

func testEndedLease(t *testing.T, rdb *redis.Client, ls []*latch.Latch) {
	key := keyOf(rdb)
	set(t, ls[0], 1)
	_, p := join(t, ls[0], "p")
	lease, err := rdb.HGet(bg, key, "p:p").Result()
	testlock.Must(t, err)
	_, id, _ := strings.Cut(lease, " ")
	testlock.Must(t, rdb.HSet(bg, key, "p:p", "1 "+id).Err()) // as if the lease had ended long ago
	reply, err := rdb.Eval(bg, script.Text("latch/renew"), []string{key}, id, "p", 30000).Text()
	if err != nil || reply != "L" {
		t.Errorf("%s, %v", reply, err)
	}
	diedAs(t, "Wait", ls[0].Wait(testlock.Bounded(t)), "p")
	diedAs(t, "CountDown", p.CountDown(bg), "p")
}

func testCanceled(t *testing.T, rdb *redis.Client, ls []*latch.Latch) {
	l, key := ls[0], keyOf(rdb)
	now, err := rdb.Time(bg).Result()
	testlock.Must(t, err)
	notAfter := now.Add(time.Minute).UnixMicro()
	canceled := func(id, party string) { // two copies of the request of Join, and of its rollback
		t.Helper()
		for range 2 {
			reply, err := rdb.Eval(bg, script.Text("latch/join"), []string{key}, id, notAfter, party,
				60000).Text()
			if err != nil || reply[:1] != "J" {
				t.Errorf("join: %s, %v", reply, err)
			}
		}
		if party == "late" {
			testlock.Must(t, rdb.HSet(bg, key, "p:late", "1 "+id).Err()) // as if the lease had ended long ago
		}
		for range 2 {
			testlock.Must(t, rdb.Eval(bg, script.Text("latch/leave"), []string{key}, id, party,
				notAfter).Err())
		}
	}
	set(t, l, 1)
	canceled("s:1", "new")
	if st := inspect(t, l); len(st.Parties) != 0 {
		t.Errorf("a canceled Join has left %+v", st.Parties)
	}
	_, p := join(t, l, "dead")
	testlock.Must(t, p.Abandon(bg))
	for _, id := range []string{"s:2", "s:3"} {
		canceled(id, "dead")
		diedAs(t, "Wait", l.Wait(testlock.Bounded(t)), "dead")
	}
	wantDeleted(t, l, true)
	set(t, l, 1)
	canceled("s:4", "late") // waiters may have noticed the end of this lease
	diedAs(t, "Wait", l.Wait(testlock.Bounded(t)), "late")
}

func testLate(t *testing.T, rdb *redis.Client, ls []*latch.Latch) {
	set(t, ls[0], 3)
	now, err := rdb.Time(bg).Result()
	testlock.Must(t, err)
	for _, c := range []struct {
		id       string
		deadline time.Time
		want     string
	}{
		{"late", now.Add(-time.Second), "V"},
		{"void", time.UnixMicro(0), "V"},
		{"too late to tell", now.Add(-time.Minute), "U"},
		{"in time", now.Add(time.Minute), "C"},
		{"in time", now.Add(-time.Minute), "C"}, // the same reply as to its first copy
	} {
		reply, err := rdb.Eval(bg, script.Text("latch/count"), []string{keyOf(rdb)}, c.id,
			c.deadline.UnixMicro()).Text()
		testlock.Must(t, err)
		if reply[:1] != c.want {
			t.Errorf("%s: %s, want %s", c.id, reply, c.want)
		}
	}
	wantCount(t, ls[0], 2)
}

func TestWhatIsWrongWithALatchEveryMethodSays(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		long := testlock.NewSession(t, w.Client, rlock.WithWatchdogTimeout(time.Hour))
		for what, l := range map[string]*latch.Latch{
			"no session": latch.New(nil, "x"), "no name": latch.New(s, ""), "zero": {}, "nil": nil,
			"a long name":       latch.New(s, strings.Repeat("x", 513)),
			"a short life":      latch.New(s, "x", latch.WithLifetime(time.Minute-1)),
			"no unit":           latch.New(s, "x", latch.WithLifetime(600)),
			"decades":           latch.New(s, "x", latch.WithLifetime(math.MaxInt64)),
			"less than a lease": latch.New(long, "x", latch.WithLifetime(time.Hour-1)),
		} {
			for i, err := range everyMethod(bg, l) {
				if err == nil || !strings.HasPrefix(err.Error(), "lockline: ") {
					t.Errorf("%s: method %d: %v", what, i, err)
				}
			}
		}
		l := latch.New(s, "x", nil, latch.WithLifetime(time.Minute))
		if l.Name() != "x" || (*latch.Latch)(nil).Name() != "" {
			t.Errorf("the name is %q", l.Name())
		}
		wrong := []int{0, -1}
		if n := int64(9e15) + 1; n <= math.MaxInt {
			wrong = append(wrong, int(n))
		}
		for _, n := range wrong {
			if set, err := l.TrySet(bg, n); err == nil || set {
				t.Errorf("TrySet of %d: %v, %v", n, set, err)
			}
		}
		var none context.Context
		if err := l.Wait(none); err == nil {
			t.Error("a nil context is accepted")
		}
		set(t, l, 1)
		for _, party := range []string{"", "\xff", strings.Repeat("x", 513)} {
			if _, _, err := l.Join(bg, party); err == nil {
				t.Errorf("a party's name is %.10q", party)
			}
		}
	})
}

// everyMethod calls all methods of l at the same time, and returns their errors in a fixed order.
func everyMethod(ctx context.Context, l *latch.Latch) []error {
	calls := []func() error{
		func() error { return l.Wait(ctx) },
		func() error { return l.CountDown(ctx) },
		func() error { return l.CountDownAndWait(ctx) },
		func() error { _, err := l.Count(ctx); return err },
		func() error { _, err := l.TrySet(ctx, 1); return err },
		func() error { _, err := l.Delete(ctx); return err },
		func() error { _, _, err := l.Join(ctx, "p"); return err },
		func() error { _, err := l.Inspect(ctx); return err },
	}
	errs, done := make([]error, len(calls)), make(chan struct{})
	for i, call := range calls {
		go func() { errs[i] = call(); done <- struct{}{} }()
	}
	for range calls {
		<-done
	}
	return errs
}
