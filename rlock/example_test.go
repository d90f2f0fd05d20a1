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

// exampleClient starts a server in this process, and returns a client for it. Use your own client instead.
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

	orders := rlock.New(session, "orders:42") // no I/O yet
	err = orders.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("alone", rlock.HoldFrom(ctx).Token() > 0) // ctx is canceled if the lock is lost
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone true
	// <nil>
}

func ExampleNewSession() {
	rdb, stop := exampleClient()
	defer stop()
	session, err := rlock.NewSession(rdb,
		rlock.WithWatchdogTimeout(10*time.Second), // a dead process keeps its locks for up to 10 s
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

// The code takes a function that makes the lock of an item, so it works with any kind of lock.
func ExampleLocker() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	settle := func(ctx context.Context, lock func(name string) rlock.Locker, account string) error {
		return rlock.Do(ctx, lock(account), func(context.Context) error {
			fmt.Println("settles account", account)
			return nil
		}, rlock.WaitAtMost(time.Second))
	}
	locks := func(name string) rlock.Locker { return rlock.New(session, "account:"+name) }
	fmt.Println(settle(context.Background(), locks, "7"))
	fmt.Println(settle(context.Background(), locks, "8"))
	// Output:
	// settles account 7
	// <nil>
	// settles account 8
	// <nil>
}

func ExampleHoldFrom() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	var last int64
	for range 2 {
		err := rlock.Do(context.Background(), rlock.New(session, "row"), func(ctx context.Context) error {
			token := rlock.HoldFrom(ctx).Token()
			fmt.Println("the token is larger:", token > last)
			last = token
			return nil
		})
		fmt.Println(err)
	}
	// Output:
	// the token is larger: true
	// <nil>
	// the token is larger: true
	// <nil>
}

func ExampleWithOwner() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	// One request is one owner, so layers that do not pass on the context of a hold can still re-enter.
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

func ExampleWithNote() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()
	other, _ := rlock.NewSession(rdb) // like the session of another process
	defer func() { _ = other.Close() }()

	err := rlock.New(session, "drawer").Do(context.Background(), func(ctx context.Context) error {
		_, _, err := rlock.New(other, "drawer").TryLock(ctx)
		var locked *rlock.LockedError
		if errors.As(err, &locked) {
			fmt.Println("taken for", locked.HeldBy().Note)
		}
		return nil
	}, rlock.WithNote("order 42"))
	fmt.Println(err)
	// Output:
	// taken for order 42
	// <nil>
}

func ExampleMutex_Lock() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	orders := rlock.New(session, "orders:42")
	ctx, hold, err := orders.Lock(context.Background()) // use this context from now on
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hold.Unlock(context.Background()) }()

	_, err = orders.ForceUnlock(context.Background()) // as an operator may do
	fmt.Println("freed under its holder:", err == nil)

	_, _, err = orders.Lock(ctx) // the next request or renewal of the holder finds the loss
	fmt.Println("a Lock below a lost hold fails:", errors.Is(err, rlock.ErrLost))
	<-ctx.Done()
	fmt.Println("the context has ended:", errors.Is(context.Cause(ctx), rlock.ErrLost))
	// Output:
	// freed under its holder: true
	// a Lock below a lost hold fails: true
	// the context has ended: true
}

func ExampleWithLease() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	// The first process of each hour does the work. Nobody unlocks, so the lock is free when its lease ends.
	report := rlock.New(session, "hourly report", rlock.WithLease(time.Hour))
	for range 2 {
		_, hold, err := report.TryLock(context.Background())
		if errors.Is(err, rlock.ErrLocked) {
			fmt.Println("done already")
			continue
		}
		fmt.Println("to be done; another process can do it after",
			time.Until(hold.Deadline()).Round(time.Hour))
	}
	// Output:
	// to be done; another process can do it after 1h0m0s
	// done already
}

func ExampleWaitAtMost() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	m := rlock.New(session, "drawer")
	_, hold, _ := m.Lock(context.Background())
	_, _, err := m.Lock(context.Background(), rlock.WaitAtMost(10*time.Millisecond))
	var locked *rlock.LockedError
	if errors.As(err, &locked) {
		fmt.Println(locked.Name, "is taken, and the lease of its holder still lasts:", locked.Remaining > 0)
	}
	fmt.Println(hold.Unlock(context.Background()))
	// Output:
	// drawer is taken, and the lease of its holder still lasts: true
	// <nil>
}

func ExampleHold_WaitReplicas() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"}) // this server has a replica
	session, err := rlock.NewSession(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = session.Close() }()

	err = rlock.New(session, "ledger").Do(context.Background(), func(ctx context.Context) error {
		bound, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := rlock.HoldFrom(ctx).WaitReplicas(bound, 1); err != nil {
			return err // a failover could forget the lock
		}
		fmt.Println("a replica has it, too")
		return nil
	})
	fmt.Println(err)
}

func ExampleHold_Extend() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	m := rlock.New(session, "import", rlock.WithLease(time.Minute))
	_, hold, _ := m.Lock(context.Background())
	err := hold.Extend(context.Background(), time.Hour) // the work takes longer than expected
	fmt.Println(err, time.Until(hold.Deadline()) > 50*time.Minute)
	_ = hold.Unlock(context.Background())
	// Output: <nil> true
}

// A printer prints all events.
type printer struct{}

func (printer) Observe(_ context.Context, e rlock.Event) {
	fmt.Println(e.Name, e.Type, e.Err == nil)
}

func ExampleObserver() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb, rlock.WithObserver(printer{}))
	defer func() { _ = session.Close() }()

	m := rlock.New(session, "orders:42")
	_, hold, _ := m.Lock(context.Background())
	_, _, _ = m.TryLock(context.Background())
	_ = hold.Unlock(context.Background())
	// Output:
	// orders:42 Acquired true
	// orders:42 NotAcquired false
	// orders:42 Released true
}

func ExampleMutex_ForceUnlock() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	m := rlock.New(session, "stuck")
	_, hold, _ := m.Lock(context.Background())
	fmt.Println(m.ForceUnlock(context.Background()))
	fmt.Println(errors.Is(hold.Unlock(context.Background()), rlock.ErrLost))
	fmt.Println(m.ForceUnlock(context.Background()))
	// Output:
	// true <nil>
	// true
	// false <nil>
}

func ExampleMutex_ForceUnlockToken() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)
	defer func() { _ = session.Close() }()

	m := rlock.New(session, "stuck")
	_, hold, _ := m.Lock(context.Background())
	state, _ := m.Inspect(context.Background())
	fmt.Println(m.ForceUnlockToken(context.Background(), state.Token-1)) // the token of another hold
	fmt.Println(m.ForceUnlockToken(context.Background(), state.Token))
	fmt.Println(errors.Is(hold.Unlock(context.Background()), rlock.ErrLost))
	// Output:
	// false <nil>
	// true <nil>
	// true
}

func ExampleHoldAtLeast() {
	rdb, stop := exampleClient()
	defer stop()

	for range 2 { // on two machines at about the same time
		session, _ := rlock.NewSession(rdb)
		defer func() { _ = session.Close() }()

		job := rlock.New(session, "report")
		err := job.Do(context.Background(), func(context.Context) error {
			fmt.Println("the job runs")
			return nil
		}, rlock.WaitAtMost(0), rlock.HoldAtLeast(30*time.Second))
		if errors.Is(err, rlock.ErrLocked) {
			fmt.Println("another machine runs it, or has run it")
		}
	}
	// Output:
	// the job runs
	// another machine runs it, or has run it
}

func ExampleSession_Shutdown() {
	rdb, stop := exampleClient()
	defer stop()
	session, _ := rlock.NewSession(rdb)

	ctx, _, _ := rlock.New(session, "orders:42").Lock(context.Background())
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(session.Shutdown(soon)) // releases all locks of the session at once
	fmt.Println(errors.Is(context.Cause(ctx), rlock.ErrClosed))
	// Output:
	// <nil>
	// true
}
