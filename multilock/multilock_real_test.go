package multilock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
)

func TestAKeyOfAnotherTypeIsOfOneMemberOnly(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	ms, members := namesOf(testlock.NewSession(t, rdb), 5)
	l := multilock.New(members...)
	for i := range ms {
		_, hold := testlock.Lock(t, l, bg)
		key := testlock.Prefix(rdb) + ":r:{" + ms[i].Name() + "}"
		testlock.Must(t, rdb.Set(bg, key, "mine", 0).Err())
		var member *multilock.MemberError
		if err := hold.Unlock(bg); !errors.As(err, &member) || member.Index != i ||
			!strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("Unlock: %v", err)
		}
		_, _, err := l.Lock(testlock.Bounded(t))
		if !errors.As(err, &member) || member.Index != i || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("Lock: %v", err)
		}
		if !free(t, slices.Delete(slices.Clone(ms), i, i+1)...) {
			t.Error("others are left")
		}
		if rdb.Get(bg, key).Val() != "mine" {
			t.Error("it was overwritten")
		}
		testlock.Must(t, rdb.Del(bg, key).Err())
	}
}

// Proves: MultiLock
func TestRandomOverlappingSetsInManyProcessesAllGetThrough(t *testing.T) {
	t.Parallel()
	contention(t, 3, 8)
}

// Proves: MultiLock
func TestOneOfManyThatTryAFreeMultiLockAtOnceGetsItFromARealServer(t *testing.T) {
	t.Parallel()
	const callers, runs = 10, 10
	rdb := testlock.Shared(t)
	for _, sessions := range []int{1, callers} {
		for run := range runs {
			all := triers(t, rdb, sessions, callers, fmt.Sprint(sessions, " ", run, " "))
			if taken := tryAtOnce(t, all); taken != 1 {
				t.Fatalf("%d sessions, run %d: %d of %d got it", sessions, run, taken, callers)
			}
		}
	}
}
