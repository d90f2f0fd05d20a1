package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

// A shop is the code under test. It charges an order and ships it, and must do so only once.
type shop struct {
	lock         rlock.Locker // in production rlock.New(session, "orders:42")
	charge, ship func(ctx context.Context) error
}

func (s *shop) checkout(ctx context.Context) (err error) {
	held, hold, err := s.lock.TryLock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	if err := s.charge(held); err != nil {
		return err
	}
	if held.Err() != nil { // stop, because another process may ship the order
		return context.Cause(held)
	}
	return s.ship(held)
}

func say(what string) func(context.Context) error {
	return func(context.Context) error {
		fmt.Println(what)
		return nil
	}
}

func ExampleNewSession() {
	t := newT() // in your code, the T of the test
	defer t.end()

	session := locktest.NewSession(t)
	s := &shop{lock: rlock.New(session, "orders:42"), charge: say("charged"), ship: say("shipped")}
	if err := s.checkout(context.Background()); err != nil {
		t.Error(err)
	}
	// Output:
	// charged
	// shipped
}

// Another process holds the lock.
func ExampleTake() {
	t := newT() // in your code, the T of the test
	defer t.end()

	server := locktest.NewServer(t)
	mine, theirs := server.NewSession(), server.NewSession()
	s := &shop{lock: rlock.New(mine, "orders:42"), charge: say("charged"), ship: say("shipped")}

	hold := locktest.Take(t, rlock.New(theirs, "orders:42"))
	fmt.Println("taken:", errors.Is(s.checkout(context.Background()), rlock.ErrLocked))
	if err := hold.Unlock(context.Background()); err != nil {
		t.Error(err)
	}
	fmt.Println("free:", s.checkout(context.Background()))
	// Output:
	// taken: true
	// charged
	// shipped
	// free: <nil>
}

// A RedLock on three servers stays held when one server fails.
func ExampleNewServer() {
	t := newT() // in your code, the T of the test
	defer t.end()

	a, b, c := locktest.NewServer(t), locktest.NewServer(t), locktest.NewServer(t)
	quorum, err := multilock.NewQuorum([]*rlock.Session{a.NewSession(), b.NewSession(), c.NewSession()})
	if err != nil {
		t.Fatal(err)
	}
	a.Refuse()
	err = quorum.New("ledger").Do(context.Background(), say("a majority is left"))
	fmt.Println(err)
	// Output:
	// a majority is left
	// <nil>
}

// Two processes share the permits of a semaphore.
func ExampleServer_NewSession() {
	t := newT() // in your code, the T of the test
	defer t.end()

	server := locktest.NewServer(t)
	mine, theirs := server.NewSession(), server.NewSession(rlock.WithLabel("the other process"))
	locktest.Take(t, semaphore.New(theirs, "reports", 3).Locker(2))

	_, _, err := semaphore.New(mine, "reports", 3).TryAcquire(context.Background(), 2)
	var locked *rlock.LockedError
	fmt.Println(errors.As(err, &locked), locked.HeldBy().Label)
	// Output: true the other process
}

// The lock is lost in the middle of the work.
func ExampleServer_Lose() {
	t := newT() // in your code, the T of the test
	defer t.end()

	server := locktest.NewServer(t)
	s := &shop{lock: rlock.New(server.NewSession(), "orders:42"), ship: say("shipped, which is a bug")}
	s.charge = func(context.Context) error {
		fmt.Println("charged")
		server.Lose("orders:42")
		return nil
	}
	err := s.checkout(context.Background())
	fmt.Println("lost:", errors.Is(err, rlock.ErrLost))
	// Output:
	// charged
	// lost: true
}

// One process is cut off from the server. (In a synctest bubble, it takes no real time to wait until its
// lease ends.)
func ExampleServer_Silence() {
	t := newT() // in your code, the T of the test
	defer t.end()

	server := locktest.NewServer(t)
	mine, theirs := server.NewSession(), server.NewSession()
	server.Silence(mine)

	soon, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, _, err := rlock.New(mine, "orders:42").TryLock(soon)
	fmt.Println("cut off:", errors.Is(err, context.DeadlineExceeded))

	err = rlock.New(theirs, "orders:42").Do(context.Background(), say("the others work"))
	fmt.Println(err)
	// Output:
	// cut off: true
	// the others work
	// <nil>
}

// The server is down, and comes back with its data.
func ExampleServer_Refuse() {
	t := newT() // in your code, the T of the test
	defer t.end()

	server := locktest.NewServer(t)
	orders := rlock.New(server.NewSession(), "orders:42")
	s := &shop{lock: orders, charge: say("charged"), ship: say("shipped")}
	server.Refuse()
	err := s.checkout(context.Background())
	fmt.Println("down:", err != nil, errors.Is(err, rlock.ErrLocked))
	server.Resume()
	fmt.Println("back:", s.checkout(context.Background()))
	// Output:
	// down: true false
	// charged
	// shipped
	// back: <nil>
}

// Redis refuses the request.
func ExampleServer_Fail() {
	t := newT() // in your code, the T of the test
	defer t.end()

	server := locktest.NewServer(t)
	server.Fail("NOPERM User worker has no permissions to access one of the keys")
	_, _, err := rlock.New(server.NewSession(), "orders:42").TryLock(context.Background())
	var refused redis.Error
	fmt.Println(errors.As(err, &refused))
	// Output: true
}

// A waiter gets the lock after an outage.
func ExampleServer_Resume() {
	t := newT() // in your code, the T of the test
	defer t.end()

	server := locktest.NewServer(t)
	orders := fairlock.New(server.NewSession(), "orders:42")
	server.Refuse()
	time.AfterFunc(50*time.Millisecond, func() { server.Resume() })
	fmt.Println(orders.Do(context.Background(), say("served")))
	// Output:
	// served
	// <nil>
}

// The server forgets all locks.
func ExampleServer_Restart() {
	t := newT() // in your code, the T of the test
	defer t.end()

	server := locktest.NewServer(t)
	mine, theirs := server.NewSession(), server.NewSession()
	hold := locktest.Take(t, rlock.New(mine, "orders:42"))
	server.Restart()
	fmt.Println("lost:", errors.Is(hold.Err(), rlock.ErrLost))
	locktest.Take(t, rlock.New(theirs, "orders:42"))
	// Output: lost: true
}

// The code under test uses Redis itself.
func ExampleServer_Client() {
	t := newT() // in your code, the T of the test
	defer t.end()

	server := locktest.NewServer(t)
	client := server.Client()
	session, err := rlock.NewSession(client)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	err = rlock.New(session, "stock").Do(context.Background(), func(ctx context.Context) error {
		return client.Incr(ctx, "sold").Err()
	})
	fmt.Println(err, client.Get(context.Background(), "sold").Val())
	// Output: <nil> 1
}

// The client of the code under test has options of its own.
func ExampleServer_Options() {
	t := newT() // in your code, the T of the test
	defer t.end()

	options := locktest.NewServer(t).Options()
	options.ReadTimeout = time.Second
	client := redis.NewClient(options)
	defer client.Close()
	fmt.Println(client.Ping(context.Background()).Val())
	// Output: PONG
}
