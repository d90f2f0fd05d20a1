package semaphore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
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

	reports := semaphore.New(session, "reports", 4) // give the same limit everywhere
	err = reports.Do(context.Background(), 1, func(ctx context.Context) error {
		fmt.Println("one of four at most, in all processes")
		return ctx.Err() // ctx ends if the permit is lost
	})
	fmt.Println(err)
	// Output:
	// one of four at most, in all processes
	// <nil>
}

func ExampleSemaphore_Acquire() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	memory := semaphore.New(session, "memory", 16)
	ctx, hold, err := memory.Acquire(context.Background(), 6) // waits until it gets all six
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("working:", ctx.Err() == nil)
	fmt.Println("released:", hold.Unlock(context.Background()))
	fmt.Println("working:", ctx.Err() == nil)
	// Output:
	// working: true
	// released: <nil>
	// working: false
}

func ExampleSemaphore_TryAcquire() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	reports := semaphore.New(session, "reports", 1)
	_, hold, err := reports.TryAcquire(context.Background(), 1)
	fmt.Println(err)
	_, _, err = reports.TryAcquire(context.Background(), 1)
	var full *rlock.LockedError
	fmt.Println(errors.Is(err, rlock.ErrLocked), errors.As(err, &full))
	fmt.Println(hold.Unlock(context.Background()))
	// Output:
	// <nil>
	// true true
	// <nil>
}

func ExampleSemaphore_Do() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	reports := semaphore.New(session, "reports", 4)
	err = reports.Do(context.Background(), 2, func(ctx context.Context) error {
		st, err := reports.Inspect(ctx)
		fmt.Println("free meanwhile:", st.Available())
		return err
	})
	fmt.Println(err)
	// Output:
	// free meanwhile: 2
	// <nil>
}

func ExampleSemaphore_Locker() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	slot := semaphore.New(session, "export-slots", 3).Locker(1)
	order := rlock.New(session, "order:42")
	err = multilock.New(order, slot).Do(context.Background(), func(context.Context) error {
		fmt.Println("alone with the order, and in one of three slots")
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone with the order, and in one of three slots
	// <nil>
}

func ExampleSemaphore_SetLimit() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	old := semaphore.New(session, "reports", 2)
	_, hold, err := old.Acquire(context.Background(), 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	reports := semaphore.New(session, "reports", 3) // the next version of the program
	_, _, err = reports.TryAcquire(context.Background(), 1)
	fmt.Println(err)
	fmt.Println(reports.SetLimit(context.Background(), 3))
	_, third, err := reports.TryAcquire(context.Background(), 1)
	fmt.Println(err)
	fmt.Println(third.Unlock(context.Background()), hold.Unlock(context.Background()))
	// Output:
	// lockline: semaphore "reports": it has 2 permits, and New says 3 (SetLimit changes the number for all)
	// <nil>
	// <nil>
	// <nil> <nil>
}

func ExampleSemaphore_TrySetLimit() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	reports := semaphore.New(session, "reports", 2)
	fmt.Println(reports.TrySetLimit(context.Background(), 3))
	fmt.Println(reports.TrySetLimit(context.Background(), 5)) // Redis already has a limit
	st, err := reports.Inspect(context.Background())
	fmt.Println(st.Limit, err)
	// Output:
	// true <nil>
	// false <nil>
	// 3 <nil>
}

func ExampleSemaphore_Inspect() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	reports := semaphore.New(session, "reports", 4)
	_, hold, err := reports.Acquire(context.Background(), 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	st, err := reports.Inspect(context.Background())
	fmt.Println(st.Used(), "of", st.Limit, "used,", st.Available(), "free,", len(st.Queue), "wait", err)
	fmt.Println("held by this session:", st.Holders[0].Session == session.ID())
	fmt.Println(hold.Unlock(context.Background()))
	// Output:
	// 3 of 4 used, 1 free, 0 wait <nil>
	// held by this session: true
	// <nil>
}

func ExampleSemaphore_ForceRelease() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	reports := semaphore.New(session, "reports", 1)
	_, hold, err := reports.Acquire(context.Background(), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	st, err := reports.Inspect(context.Background()) // an operator finds the holder
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reports.ForceRelease(context.Background(), st.Holders[0].Token))
	fmt.Println("lost:", errors.Is(hold.Unlock(context.Background()), rlock.ErrLost))
	// Output:
	// true <nil>
	// lost: true
}
