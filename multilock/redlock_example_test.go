package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// exampleServers starts servers in this process, and makes a session for each of them. Use your own servers
// instead. They must be independent of each other.
func exampleServers(n int) (servers []*miniredis.Miniredis, sessions []*rlock.Session, stop func()) {
	var clients []*redis.Client
	for range n {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			panic(err)
		}
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		session, err := rlock.NewSession(rdb)
		if err != nil {
			panic(err)
		}
		servers, clients, sessions = append(servers, server), append(clients, rdb), append(sessions, session)
	}
	return servers, sessions, func() {
		for i := range servers {
			_ = sessions[i].Close()
			_ = clients[i].Close()
			servers[i].Close()
		}
	}
}

func ExampleRedLock() {
	servers, sessions, stop := exampleServers(5)
	defer stop()

	quorum, err := multilock.NewQuorum(sessions)
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := quorum.New("orders:42")
	for range 2 {
		err := orders.Do(context.Background(), func(ctx context.Context) error {
			_, nested, err := orders.Lock(ctx) // re-enters: ctx carries the hold
			if err != nil {
				return err
			}
			defer func() { _ = nested.Unlock(ctx) }()
			fmt.Println("held, with a token:", nested.Token() > 0)
			return nil
		})
		fmt.Println(err)
		servers[0].Close() // four of five servers are enough
	}
	// Output:
	// held, with a token: true
	// <nil>
	// held, with a token: true
	// <nil>
}

func ExampleNewQuorum() {
	_, sessions, stop := exampleServers(3)
	defer stop()

	quorum, err := multilock.NewQuorum(sessions, multilock.WithServerTimeout(50*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, hold, err := quorum.New("orders:42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hold.Unlock(context.Background()) }()
	_, _, err = quorum.New("orders:42").TryLock(context.Background()) // the context carries no hold
	fmt.Println(errors.Is(err, rlock.ErrLocked))

	_, err = multilock.NewQuorum([]*rlock.Session{sessions[0], sessions[1], sessions[0]})
	fmt.Println(err)
	// Output:
	// true
	// lockline: RedLock: sessions 1 and 3 are of one server; its vote would count twice
}
