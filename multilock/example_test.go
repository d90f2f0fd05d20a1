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

// exampleSession starts a server in this process, and returns a session for it. Use your own client instead.
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
	here, stopHere := exampleSession()
	defer stopHere()
	there, stopThere := exampleSession()
	defer stopThere()

	one, two := rlock.New(here, "account:1"), fairlock.New(there, "account:2")
	transfer := multilock.New(one, two) // no deadlock, even if other calls name the members in another order

	ctx, hold, err := transfer.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, part := range hold.Parts() {
		fmt.Println(part.Name(), "has a token:", part.Token() > 0)
	}
	// ctx carries the holds of both members, and ends if either of them is lost.
	fmt.Println(two.Do(ctx, func(context.Context) error { return nil }))

	// Other callers cannot lock the members one by one, nor together.
	_, _, err = multilock.New(two, one).TryLock(context.Background())
	var member *multilock.MemberError
	fmt.Println(errors.Is(err, rlock.ErrLocked), errors.As(err, &member) && member.Name == "account:1")
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// account:1 has a token: true
	// account:2 has a token: true
	// <nil>
	// true true
	// <nil>
}

func ExampleMultiLock_Do() {
	session, stop := exampleSession()
	defer stop()

	from, to := rlock.New(session, "account:1"), rlock.New(session, "account:2")
	err := multilock.New(from, to).Do(context.Background(), func(context.Context) error {
		fmt.Println("both accounts are ours") // both requests went in one pipeline
		return nil
	})
	fmt.Println(err)
	// Output:
	// both accounts are ours
	// <nil>
}
