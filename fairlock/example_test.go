package fairlock_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/rlock"
)

func ExampleNew() {
	server := miniredis.NewMiniRedis() // use your own server instead
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	session, err := rlock.NewSession(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = session.Close() }()

	printer := fairlock.New(session, "printer")
	err = printer.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("served")
		return printer.Do(ctx, func(context.Context) error { // re-enters: ctx carries the hold
			fmt.Println("still served")
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// served
	// still served
	// <nil>
}
