package multilock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// exampleSession is a session on a server that lives in this process. Use your own client.
func exampleSession() (*rlock.Session, func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	session, err := rlock.NewSession(rdb)
	if err != nil {
		panic(err)
	}
	return session, func() { _ = session.Close(); _ = rdb.Close(); server.Close() }
}

func ExampleNew() {
	orders, stopOrders := exampleSession()
	defer stopOrders()
	stock, stopStock := exampleSession()
	defer stopStock()

	order := rlock.New(orders, "order:42")
	shelf := fairlock.New(stock, "shelf:7")
	both := multilock.New(order, shelf) // in any order, here and elsewhere: no deadlock

	ctx, hold, err := both.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, part := range hold.Parts() {
		fmt.Println(part.Name(), "has a token:", part.Token() > 0)
	}
	// ctx carries both holds, and ends if any of them is lost.
	fmt.Println(shelf.Do(ctx, func(context.Context) error { return nil }))

	// For others they are taken, each and together.
	_, _, err = multilock.New(shelf, order).TryLock(context.Background())
	var member *multilock.MemberError
	fmt.Println(errors.Is(err, rlock.ErrLocked), errors.As(err, &member) && member.Name == "shelf:7")
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// order:42 has a token: true
	// shelf:7 has a token: true
	// <nil>
	// true true
	// <nil>
}

func ExampleMultiLock_Do() {
	session, stop := exampleSession()
	defer stop()

	from, to := rlock.New(session, "account:1"), rlock.New(session, "account:2")
	err := multilock.New(from, to).Do(context.Background(), func(context.Context) error {
		fmt.Println("both accounts are ours") // taken in one pipeline
		return nil
	})
	fmt.Println(err)
	// Output:
	// both accounts are ours
	// <nil>
}
