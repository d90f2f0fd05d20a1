package redisson_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

func ExampleNew() {
	server := miniredis.NewMiniRedis() // use the Redis of the JVMs
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

	orders := redisson.New(session, "orders:42") // redisson.getLock("orders:42") in a JVM
	err = orders.Do(context.Background(), func(context.Context) error {
		fmt.Println("no JVM has it")
		return nil
	})
	fmt.Println(err)
	// Output:
	// no JVM has it
	// <nil>
}
