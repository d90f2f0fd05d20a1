package locktest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/rlock"
)

// shop is the code under test: it charges an order and ships it, once.
type shop struct {
	lock         rlock.Locker // in production rlock.New(session, "orders:42")
	charge, ship func(ctx context.Context) error
}

func (s *shop) checkout(ctx context.Context) (err error) {
	held, hold, err := s.lock.TryLock(ctx)
	if errors.Is(err, rlock.ErrLocked) {
		return nil // somebody else is at it
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(context.WithoutCancel(ctx))) }()
	if err := s.charge(held); err != nil {
		return err
	}
	if held.Err() != nil { // the lock was lost meanwhile: do not go on
		return context.Cause(held)
	}
	return s.ship(held)
}

// The lock is lost in the middle of what it protects.
func ExampleSpace_Lose() {
	var space locktest.Space
	s := &shop{lock: space.New("orders:42")}
	s.charge = func(context.Context) error {
		fmt.Println("charged")
		space.Lose("orders:42")
		return nil
	}
	s.ship = func(context.Context) error {
		fmt.Println("shipped") // a bug
		return nil
	}
	err := s.checkout(context.Background())
	fmt.Println("lost:", errors.Is(err, rlock.ErrLost))
	// Output:
	// charged
	// lost: true
}

// Somebody else holds the lock.
func ExampleSpace_Occupy() {
	var space locktest.Space
	work := func(context.Context) error {
		fmt.Println("at work")
		return nil
	}
	s := &shop{lock: space.New("orders:42"), charge: work, ship: work}

	free := space.Occupy("orders:42")
	fmt.Println("taken:", s.checkout(context.Background()))
	free()
	fmt.Println("free:", s.checkout(context.Background()))
	// Output:
	// taken: <nil>
	// at work
	// at work
	// free: <nil>
}

// Redis does not answer.
func ExampleSpace_Fail() {
	var space locktest.Space
	s := &shop{lock: space.New("orders:42")}
	outage := errors.New("connection refused")
	space.Fail(outage)
	fmt.Println(errors.Is(s.checkout(context.Background()), outage))
	// Output: true
}

// A test sees that nothing was left behind.
func ExampleSpace_Inspect() {
	var space locktest.Space
	orders := space.New("orders:42")
	ctx, hold, _ := orders.Lock(context.Background())
	_, nested, _ := orders.Lock(ctx)
	state := space.Inspect("orders:42")
	fmt.Println(state.Held, state.Count, state.Token == hold.Token())
	_, _ = nested.Unlock(ctx), hold.Unlock(ctx)
	fmt.Println(space.Inspect("orders:42").Held)
	// Output:
	// true 2 true
	// false
}
