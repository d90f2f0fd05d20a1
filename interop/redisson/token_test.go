package redisson

import (
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestTheTokensOfBothSidesRiseTogether(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	rdb := server.Client(t)
	m := rlock.New(newSession(t, rdb), "x")
	jvm := dial(t, lease, server.Addr)
	a, b := jvm.thread("a"), jvm.thread("b")
	last := int64(0)
	rises := func(whose string, token int64) {
		t.Helper()
		if token <= last {
			t.Errorf("%s has token %d after %d", whose, token, last)
		}
		last = token
	}
	inJVM := func() {
		t.Helper()
		rises("the JVM", a.number("lockAndGetToken", "x"))
		a.do("unlock", "x")
	}
	inGo := func(options ...rlock.Option) *rlock.Hold {
		t.Helper()
		_, hold := lock(t, m, bg, options...)
		rises("Go", hold.Token())
		return hold
	}

	inJVM() // the first of all
	for range 3 {
		unlock(t, inGo())
		inJVM()
	}

	rises("the JVM", a.number("lockAndGetToken", "x"))
	rises("the JVM, which has re-entered,", a.number("lockAndGetToken", "x"))
	a.do("unlock", "x")
	a.do("unlock", "x")

	// Handed over in memory, each with a token of its own.
	first := inGo()
	var wg sync.WaitGroup
	tokens := make(chan int64, 3)
	for range cap(tokens) {
		wg.Go(func() {
			_, hold, err := m.Lock(bg)
			if err == nil {
				tokens <- hold.Token()
				err = hold.Unlock(bg)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	unlock(t, first)
	wg.Wait()
	close(tokens)
	for token := range tokens {
		rises("Go, from goroutine to goroutine,", token)
	}
	inJVM()

	// A block of tokens that nobody gave back: lost by time, and by force.
	inGo(rlock.WithLease(50 * time.Millisecond))
	inJVM()
	forced := inGo()
	b.do("forceUnlock", "x")
	inJVM()
	_ = forced.Unlock(bg) // too late
	unlock(t, inGo())
	inJVM()

	// What the JVM lost.
	rises("the JVM", a.number("lockAndGetToken", "x"))
	if _, err := m.ForceUnlock(bg); err != nil {
		t.Fatal(err)
	}
	unlock(t, inGo())
	inJVM()

	// Redis forgets our memory a minute after; Redisson's counter stays.
	must(t, rdb.Del(bg, "lockline_lock_memory:{x}").Err())
	inJVM()
	unlock(t, inGo())
	inJVM()
}
