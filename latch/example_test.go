package latch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

// newSession opens a session on a server of its own. Use your own server.
func newSession() (s *rlock.Session, end func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	s, err := rlock.NewSession(rdb)
	if err != nil {
		panic(err)
	}
	return s, func() {
		_ = s.Close()
		_ = rdb.Close()
		server.Close()
	}
}

func ExampleNew() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	imported := latch.New(session, "import 42", latch.WithLifetime(time.Hour))
	if _, err := imported.TrySet(ctx, 2); err != nil {
		fmt.Println(err)
	}
	for _, file := range []string{"a.csv", "b.csv"} { // in other processes, most likely
		go func() {
			_ = file // import it
			if err := imported.CountDown(ctx); err != nil {
				fmt.Println(err)
			}
		}()
	}
	fmt.Println(imported.Wait(ctx))
	// Output: <nil>
}

func ExampleLatch_TrySet() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "start")
	fmt.Println(l.TrySet(ctx, 1))
	fmt.Println(l.TrySet(ctx, 5)) // there already is a run
	fmt.Println(l.CountDown(ctx))
	fmt.Println(l.TrySet(ctx, 5))
	// Output:
	// true <nil>
	// false <nil>
	// <nil>
	// true <nil>
}

func ExampleLatch_CountDown() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "start")
	_, _ = l.TrySet(ctx, 1)
	fmt.Println(l.CountDown(ctx))
	fmt.Println(l.CountDown(ctx)) // the count stays 0
	fmt.Println(l.Count(ctx))
	// Output:
	// <nil>
	// <nil>
	// 0 <nil>
}

func ExampleLatch_Count() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "start")
	_, _ = l.TrySet(ctx, 3)
	_ = l.CountDown(ctx)
	fmt.Println(l.Count(ctx))
	// Output: 2 <nil>
}

func ExampleLatch_Wait() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "start")
	fmt.Println(l.Wait(ctx)) // there is no run
	_, _ = l.TrySet(ctx, 1)
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	fmt.Println(errors.Is(l.Wait(soon), context.DeadlineExceeded)) // nobody counts down
	// Output:
	// <nil>
	// true
}

// Each worker begins its second step once all have done the first.
func ExampleLatch_CountDownAndWait() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "first step")
	_, _ = l.TrySet(ctx, 3)
	done := make(chan error)
	for range 3 {
		go func() { done <- l.CountDownAndWait(ctx) }()
	}
	fmt.Println(<-done, <-done, <-done)
	// Output: <nil> <nil> <nil>
}

func ExampleLatch_Delete() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "start")
	_, _ = l.TrySet(ctx, 2)
	fmt.Println(l.Delete(ctx)) // waiters return latch.ErrDeleted
	fmt.Println(l.Delete(ctx))
	// Output:
	// true <nil>
	// false <nil>
}

func ExampleLatch_Inspect() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "import 42")
	_, _ = l.TrySet(ctx, 2)
	_, party, _ := l.Join(ctx, "worker 7")
	defer func() { _ = party.Abandon(ctx) }()
	st, err := l.Inspect(ctx)
	fmt.Println(st.Count, st.Parties[0].Name, err)
	// Output: 2 worker 7 <nil>
}

func ExampleLatch_Join() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "import 42")
	_, _ = l.TrySet(ctx, 1)
	work, party, err := l.Join(ctx, "worker 7")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = party.Abandon(ctx) }() // nothing happens after CountDown
	if work.Err() != nil {                    // the lease was lost: the others know that worker 7 died
		fmt.Println(context.Cause(work))
		return
	}
	fmt.Println(party.Name(), party.CountDown(ctx))
	fmt.Println(l.Wait(ctx))
	// Output:
	// worker 7 <nil>
	// <nil>
}

func ExampleParty_CountDown() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "import 42")
	_, _ = l.TrySet(ctx, 2)
	_, party, err := l.Join(ctx, "worker 7")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(party.CountDown(ctx))
	fmt.Println(party.CountDown(ctx)) // the party has counted before
	fmt.Println(l.Count(ctx))
	// Output:
	// <nil>
	// <nil>
	// 1 <nil>
}

func ExampleParty_Abandon() {
	session, end := newSession()
	defer end()
	ctx := context.Background()

	l := latch.New(session, "import 42")
	_, _ = l.TrySet(ctx, 1)
	_, party, err := l.Join(ctx, "worker 7")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(party.Abandon(ctx))
	err = l.Wait(ctx)
	var died *latch.PartyDiedError
	fmt.Println(errors.As(err, &died), errors.Is(err, latch.ErrPartyDied))
	fmt.Println(err)
	// Output:
	// <nil>
	// true true
	// lockline: latch "import 42": the lease of party "worker 7" ended before it counted
}
