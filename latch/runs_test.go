package latch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

func TestTheCountIsSetOnlyIfNoneIsRunning(t *testing.T) {
	t.Parallel()
	_, ls := open(t, 2)
	a, b := ls[0], ls[1]
	wantCount(t, a, 0)
	set(t, a, 3)
	if set, err := b.TrySet(bg, 5); err != nil || set {
		t.Errorf("the second TrySet: %v, %v", set, err)
	}
	wantCount(t, b, 3)
	countDown(t, b)
	wantCount(t, a, 2)
}

func TestALatchCanBeSetAgainAfterZero(t *testing.T) {
	t.Parallel()
	_, ls := open(t, 2)
	for n := 1; n <= 3; n++ {
		set(t, ls[0], n)
		for range n {
			countDown(t, ls[1])
		}
		wantCount(t, ls[0], 0)
	}
}

func TestCountingDownBelowZeroIsHarmless(t *testing.T) {
	t.Parallel()
	_, ls := open(t, 1)
	l := ls[0]
	countDown(t, l) // where none was set
	set(t, l, 1)
	for range 5 {
		countDown(t, l)
		wantCount(t, l, 0)
	}
	testlock.Must(t, l.CountDownAndWait(bg))
	set(t, l, 2)
	wantCount(t, l, 2)
}

func TestWhatIsWrongWithALatchEveryMethodSays(t *testing.T) {
	t.Parallel()
	rdb := testlock.Embedded(t)
	s := testlock.NewSession(t, rdb)
	for what, l := range map[string]*latch.Latch{
		"no session": latch.New(nil, "x"), "no name": latch.New(s, ""), "a long name": latch.New(s, strings.Repeat("x", 513)), "zero": {}, "nil": nil,
		"a short life":      latch.New(s, "x", latch.WithLifetime(time.Minute-1)),
		"less than a lease": latch.New(testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(time.Hour)), "x", latch.WithLifetime(time.Hour-1)),
		"Redisson's":        latch.New(testlock.NewSession(t, rdb, rlock.RedissonKeys()), "x"),
	} {
		_, set := l.TrySet(bg, 1)
		_, deleted := l.Delete(bg)
		_, count := l.Count(bg)
		_, inspected := l.Inspect(bg)
		_, _, joined := l.Join(bg, "p")
		for i, err := range []error{set, deleted, count, inspected, joined, l.CountDown(bg), l.Wait(bg), l.CountDownAndWait(bg)} {
			if err == nil || !strings.HasPrefix(err.Error(), "lockline: ") {
				t.Errorf("%s: method %d: %v", what, i, err)
			}
		}
	}
	l := latch.New(s, "x", nil, latch.WithLifetime(time.Minute))
	if l.Name() != "x" || (*latch.Latch)(nil).Name() != "" {
		t.Errorf("the name is %q", l.Name())
	}
	for _, n := range []int{0, -1, 9e15 + 1} {
		if set, err := l.TrySet(bg, n); err == nil || set {
			t.Errorf("TrySet of %d: %v, %v", n, set, err)
		}
	}
	set(t, l, 9e15)
	wantCount(t, l, 9e15)
	var none context.Context
	if err := l.Wait(none); err == nil {
		t.Error("a nil context is accepted")
	}
	for _, party := range []string{"", "\xff", strings.Repeat("x", 513)} {
		if _, _, err := l.Join(bg, party); err == nil {
			t.Errorf("a party's name is %.10q", party)
		}
	}
}

func TestAValueThatLocklineDidNotWriteIsAnErrorThatNamesTheKey(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 1)
	set(t, ls[0], 2)
	testlock.Must(t, rdb.HSet(bg, key, "n", "many").Err())
	for i, err := range []error{ls[0].CountDown(bg), ls[0].Wait(bg)} {
		if err == nil || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "lock by force") {
			t.Errorf("%d: %v", i, err)
		}
	}
	if deleted, err := ls[0].Delete(bg); err != nil || !deleted {
		t.Errorf("Delete: %v, %v", deleted, err)
	}
	testlock.Must(t, rdb.Del(bg, key).Err())
	testlock.Must(t, rdb.Set(bg, key, "a string", 0).Err())
	if err := ls[0].Wait(bg); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("Wait: %v", err)
	}
}

func TestWaitersOfADeletedLatchAreTold(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 2)
	a, b := ls[0], ls[1]
	if deleted, err := a.Delete(bg); err != nil || deleted {
		t.Errorf("Delete of none: %v, %v", deleted, err)
	}
	set(t, a, 2)
	done := waits(t, rdb, b)
	both := make(chan error, 1)
	go func() { both <- b.CountDownAndWait(bg) }()
	testlock.Eventually(t, "counted", func() bool { n, _ := a.Count(bg); return n == 1 })
	if deleted, err := a.Delete(bg); err != nil || !deleted {
		t.Errorf("Delete: %v, %v", deleted, err)
	}
	ended(t, done, latch.ErrDeleted)
	ended(t, both, latch.ErrDeleted)
	wantCount(t, b, 0)
	testlock.Must(t, b.Wait(bg))
	if deleted, err := a.Delete(bg); err != nil || deleted {
		t.Errorf("the second Delete: %v, %v", deleted, err)
	}
	set(t, a, 1)
	countDown(t, a)
	if deleted, err := a.Delete(bg); err != nil || deleted {
		t.Errorf("Delete of one that is over: %v, %v", deleted, err)
	}
	if errors.Is(a.Wait(bg), latch.ErrDeleted) {
		t.Error("a run that ended at 0 is called deleted")
	}
}
