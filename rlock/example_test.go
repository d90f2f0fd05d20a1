package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/rlock"
)

// exampleClient connects to a server that lives in this process. Use your own.
func exampleClient() (*redis.Client, func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return rdb, func() { _ = rdb.Close(); server.Close() }
}

func ExampleNew() {
	rdb, stop := exampleClient()
	defer stop()
	session, err := rlock.NewSession(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = session.Close() }()

	orders := rlock.New(session, "orders:42")
	ctx, hold, err := orders.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hold.Unlock(context.Background()) }()

	// ctx re-enters, and is canceled if the lock is ever lost.
	_, nested, err := orders.Lock(ctx)
	fmt.Println("re-entered:", err == nil, "one token:", nested.Token() == hold.Token())
	_ = nested.Unlock(ctx)
	// Output: re-entered: true one token: true
}

func ExampleNewSession() {
	rdb, stop := exampleClient()
	defer stop()
	session, err := rlock.NewSession(rdb,
		rlock.WithWatchdogTimeout(10*time.Second), // a dead process keeps its locks this long
		rlock.WithLabel("billing"),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(session.Close())
	// Output: <nil>
}

func ExampleMutex_Do() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	stock := rlock.New(session, "stock")
	err := stock.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("alone")
		return stock.Do(ctx, func(context.Context) error { // re-enters: ctx carries the hold
			fmt.Println("still alone")
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// alone
	// still alone
	// <nil>
}

func ExampleMutex_TryLock() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	report := rlock.New(session, "nightly report")
	_, hold, err := report.TryLock(context.Background())
	fmt.Println("first:", err)
	_, _, err = report.TryLock(context.Background())
	fmt.Println("second is locked out:", errors.Is(err, rlock.ErrLocked))
	_ = hold.Unlock(context.Background())
	// Output:
	// first: <nil>
	// second is locked out: true
}

func ExampleHold_Token() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	row := rlock.New(session, "row")
	_, first, _ := row.Lock(context.Background())
	_ = first.Unlock(context.Background())
	_, second, _ := row.Lock(context.Background())
	_ = second.Unlock(context.Background())
	fmt.Println("tokens grow:", second.Token() > first.Token())
	// Output: tokens grow: true
}

func ExampleWithOwner() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	// One request, one owner: layers that do not pass contexts on re-enter all the same.
	request := rlock.WithOwner(context.Background())
	cart := rlock.New(session, "cart")
	_, outer, _ := cart.Lock(request)
	_, inner, err := cart.Lock(request)
	fmt.Println(err)
	_ = inner.Unlock(request)
	_ = outer.Unlock(request)
	// Output: <nil>
}

func ExampleMutex_Inspect() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb, rlock.WithLabel("till 3"))
	defer func() { _ = session.Close() }()

	m := rlock.New(session, "drawer")
	_, hold, _ := m.Lock(context.Background())
	state, _ := m.Inspect(context.Background())
	fmt.Println(state.Held, state.Label, state.Count, state.Token == hold.Token())
	_ = hold.Unlock(context.Background())
	// Output: true till 3 1 true
}
