package election_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/rlock"
)

// newSession returns a session of a server in memory. Use your own server.
func newSession() (session *rlock.Session, end func(), err error) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	session, err = rlock.NewSession(rdb)
	return session, func() {
		_ = session.Close()
		_ = rdb.Close()
		server.Close()
	}, err
}

func ExampleNew() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	scheduler := election.New(session, "scheduler")
	ctx, leadership, err := scheduler.Campaign(context.Background(), "10.0.0.7:8080") // blocks until elected
	if err != nil {
		fmt.Println(err)
		return
	}
	// Lead until ctx ends.
	fmt.Println("leading:", ctx.Err() == nil)
	fmt.Println("resigned:", leadership.Resign(context.Background()))
	fmt.Println("leading:", ctx.Err() == nil)
	// Output:
	// leading: true
	// resigned: <nil>
	// leading: false
}

func ExampleElection_Campaign() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	scheduler := election.New(session, "scheduler")
	ctx, leadership, err := scheduler.Campaign(context.Background(), "starting")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = leadership.Resign(context.Background()) }()
	_, same, err := scheduler.Campaign(ctx, "ready") // the leader stores a new value
	fmt.Println(same == leadership, err)
	leader, ok, err := scheduler.Leader(context.Background())
	fmt.Println(leader.Value, ok, err)
	// Output:
	// true <nil>
	// ready true <nil>
}

func ExampleElection_Run() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	scheduler := election.New(session, "scheduler")
	err = scheduler.Run(context.Background(), "10.0.0.7:8080", func(ctx context.Context) error {
		leader, _, err := scheduler.Leader(ctx)
		fmt.Println("leading as", leader.Value) // work until ctx ends
		return err
	})
	_, leads, _ := scheduler.Leader(context.Background())
	fmt.Println(err, leads)
	// Output:
	// leading as 10.0.0.7:8080
	// <nil> false
}

func ExampleElection_Leader() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	scheduler := election.New(session, "scheduler")
	_, ok, err := scheduler.Leader(context.Background())
	fmt.Println(ok, err)
	_, leadership, err := scheduler.Campaign(context.Background(), "10.0.0.7:8080")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = leadership.Resign(context.Background()) }()
	leader, ok, err := scheduler.Leader(context.Background())
	fmt.Println(leader.Value, leader.Token == leadership.Token(), ok, err)
	// Output:
	// false <nil>
	// 10.0.0.7:8080 true true <nil>
}

func ExampleElection_Observe() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	scheduler := election.New(session, "scheduler")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var leadership *election.Leadership
	for leader, err := range scheduler.Observe(ctx) {
		switch {
		case errors.Is(err, context.Canceled):
			fmt.Println("the end")
		case err != nil:
			fmt.Println(err)
		case leader.None() && leadership == nil:
			fmt.Println("nobody leads")
			if _, leadership, err = scheduler.Campaign(ctx, "10.0.0.7:8080"); err != nil {
				return
			}
		case leader.None():
			fmt.Println("nobody leads any more")
			cancel()
		default:
			fmt.Println(leader.Value, "leads")
			_ = leadership.Resign(ctx)
		}
	}
	// Output:
	// nobody leads
	// 10.0.0.7:8080 leads
	// nobody leads any more
	// the end
}

func ExampleElection_Inspect() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	scheduler := election.New(session, "scheduler")
	_, leadership, err := scheduler.Campaign(context.Background(), "10.0.0.7:8080")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = leadership.Resign(context.Background()) }()
	state, err := scheduler.Inspect(context.Background())
	fmt.Println("this session leads:", state.Session == session.ID())
	fmt.Println(len(state.Queue), "wait:", err)
	// Output:
	// this session leads: true
	// 0 wait: <nil>
}

func ExampleLeadership_Proclaim() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	scheduler := election.New(session, "scheduler")
	_, leadership, err := scheduler.Campaign(context.Background(), "starting")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = leadership.Resign(context.Background()) }()
	fmt.Println(leadership.Proclaim(context.Background(), "ready"))
	leader, _, err := scheduler.Leader(context.Background())
	fmt.Println(leader.Value, err)
	// Output:
	// <nil>
	// ready <nil>
}

func ExampleLeadership_Resign() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	scheduler := election.New(session, "scheduler")
	_, first, err := scheduler.Campaign(context.Background(), "first")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(first.Err(), first.Resign(context.Background()))
	_, second, err := scheduler.Campaign(context.Background(), "second")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("tokens grow:", second.Token() > first.Token())
	fmt.Println(errors.Is(first.Err(), rlock.ErrNotHeld), second.Resign(context.Background()))
	// Output:
	// <nil> <nil>
	// tokens grow: true
	// true <nil>
}
