package mistakes

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// The following functions make the mistakes that docs/faq.md describes.

// Lock has overwritten the caller's context. So the Do of the other lock gets a context that has ended.
func overwritten(ctx context.Context, orders, stock *rlock.Mutex) error {
	ctx, hold, err := orders.Lock(ctx)
	if err != nil {
		return err
	}
	if err := hold.Unlock(ctx); err != nil {
		return err
	}
	return stock.Do(ctx, work) // want `ctx has ended with the Unlock in line 30`
}

func overwrittenInLoop(ctx context.Context, orders *rlock.Mutex) (err error) {
	var hold *rlock.Hold
	for range 2 {
		ctx, hold, err = orders.Lock(ctx) // want `ctx has ended with the Unlock in line 44`
		if err != nil {
			return err
		}
		err = work(ctx)
		err = errors.Join(err, hold.Unlock(ctx))
	}
	return err
}

// The second Lock never returns, because it does not get the context of the hold that the caller has.
func waitsForItself(ctx context.Context, orders *rlock.Mutex) error {
	held, hold, err := orders.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(held)
	_, nested, err := orders.Lock(ctx) // want `ctx is from before this Lock, .*its own caller`
	if err != nil {
		return err
	}
	return nested.Unlock(ctx)
}

func waitsForItselfInDo(ctx context.Context, orders *rlock.Mutex) error {
	return orders.Do(ctx, func(context.Context) error {
		return orders.Do(ctx, work) // want `ctx comes from outside of this Do, .*: name the parameter`
	})
}

// If the lock is lost, the statement of the database continues.
func deaf(w http.ResponseWriter, r *http.Request, db *sql.DB, orders *rlock.Mutex) {
	err := orders.Do(r.Context(), func(ctx context.Context) error {
		_, err := db.ExecContext(r.Context(), "UPDATE") // want `r.Context\(\) comes from outside of this Do`
		return err
	})
	if err != nil {
		http.Error(w, "busy", http.StatusConflict)
	}
}

func WithUser(ctx context.Context) context.Context { return context.WithValue(ctx, "user", "me") }

type failure struct{ error }

func check(context.Context) *failure { return nil }

// The following calls do not end with the lock, although most of them return no error themselves.
func deafWithoutError(ctx context.Context, db *sql.DB, rdb *redis.Client, r *http.Request,
	page func(context.Context) *http.Request, orders *rlock.Mutex) error {
	return orders.Do(ctx, func(held context.Context) error {
		_ = db.QueryRowContext(ctx, "SELECT 1")                        // want `ctx comes from outside`
		_ = rdb.Ping(ctx)                                              // want `ctx comes from outside`
		_ = rdb.Get(ctx, "x").Err()                                    // want `ctx comes from outside`
		_ = exec.CommandContext(ctx, "date")                           // want `ctx comes from outside`
		_, _ = http.NewRequestWithContext(ctx, "GET", "http://x", nil) // want `ctx comes from outside`
		_, _ = r.WithContext(ctx), page(ctx)                           // want `ctx comes` `ctx comes`
		_ = check(ctx)                                                 // want `ctx comes from outside`
		return work(WithUser(ctx))                                     // want `ctx comes from outside`
	})
}

func deafWithDeadline(ctx context.Context, orders *rlock.Mutex) error {
	return orders.Do(ctx, func(held context.Context) error {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return errors.Join(work(soon), // want `soon comes from outside of this Do, .*: pass on held`
			work(context.WithValue(ctx, "a", "b"))) // want `context.WithValue\(.*\) comes from outside`
	})
}

func deafAfterLock(ctx context.Context, orders *rlock.Mutex) error {
	held, hold, err := orders.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(held)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return work(ctx) // want `ctx is from before this Lock, .*: pass on held`
}

// If the lock is lost, the transaction continues.
func transaction(ctx context.Context, db *sql.DB, orders *rlock.Mutex) (err error) {
	_, hold, err := orders.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	tx, err := db.BeginTx(ctx, nil) // want `ctx is from before this Lock`
	if err != nil {
		return err
	}
	return tx.Commit()
}

// A canceled context unlocks nothing, and the garbage collector is no substitute for an Unlock.
func forgotten(ctx context.Context, s *rlock.Session) error {
	orders := rlock.New(s, "orders", rlock.WaitAtMost(time.Second))
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	held, _, err := orders.Lock(ctx) // want `the result that ends this Lock is discarded, so the lock stays`
	if err != nil {
		return err
	}
	return work(held)
}

func forgottenOnOnePath(ctx context.Context, orders *rlock.Mutex, ready bool) error {
	held, hold, err := orders.TryLock(ctx) // want `hold has no Unlock before the return in line 153`
	if errors.Is(err, rlock.ErrLocked) || err != nil {
		return err
	}
	if !ready && hold.Err() == nil {
		return nil
	}
	err = work(held)
	return errors.Join(err, hold.Unlock(ctx))
}

func forgottenAfterError(ctx context.Context, orders *rlock.Mutex) error {
	held, hold, err := orders.Lock(ctx) // want `hold has no Unlock`
	if err != nil {
		return err
	}
	err = work(held)
	if err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

// Unlock says "the Hold is nil", because Lock has failed.
func failed(ctx context.Context, orders *rlock.Mutex) error {
	held, hold, _ := orders.Lock(ctx) // want `the error of Lock is dropped, so the code after it may`
	defer hold.Unlock(ctx)
	return work(held)
}

// WaitAtMost is shorter than a round trip.
func shortWait(ctx context.Context, orders *rlock.Mutex) error {
	const tries = 2
	return orders.Do(ctx, work, rlock.WaitAtMost(tries*10)) // want `tries \* 10 has no unit, .* gets 20ns`
}

func deafInInnerDo(ctx context.Context, orders, stock *rlock.Mutex) error {
	return orders.Do(ctx, func(held context.Context) error {
		return stock.Do(held, func(context.Context) error {
			return work(ctx) // want `ctx comes from outside of this Do`
		})
	})
}

func deafIfLocked(ctx context.Context, orders *rlock.Mutex) error {
	_, hold, err := orders.TryLock(ctx)
	if err == nil {
		defer hold.Unlock(ctx)
		return work(ctx) // want `ctx is from before this TryLock`
	}
	return work(ctx)
}

func unlockedElsewhere(ctx context.Context, orders *rlock.Mutex) error {
	held, hold, err := orders.Lock(ctx)
	if err != nil {
		return err
	}
	go hold.Unlock(ctx)
	return work(held) // want `held has ended with the Unlock`
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func deafAfterMust(ctx context.Context, orders *rlock.Mutex) error {
	held, hold, err := orders.Lock(ctx)
	must(err)
	defer hold.Unlock(held)
	return work(ctx) // want `ctx is from before this Lock`
}

func variableReused(ctx context.Context, orders, stock *rlock.Mutex) error {
	held, hold, err := orders.Lock(ctx)
	must(err)
	must(hold.Unlock(ctx))
	must(work(held)) // want `held has ended with the Unlock`
	other, hold, err := stock.Lock(ctx)
	must(err)
	defer hold.Unlock(ctx)
	return work(other)
}

// The locks have no fixed lease, so they stay held.
func forgottenLocks(ctx context.Context, s *rlock.Session, q *multilock.Quorum) error {
	a, b, note := rlock.New(s, "a"), fairlock.New(s, "b"), rlock.WithNote("batch")
	ctx, _, err := multilock.New(a, b).Lock(ctx, note) // want `the result that ends this Lock is discarded`
	must(err)
	ctx, _, err = q.New("c").TryLock(ctx) // want `ends this TryLock is discarded`
	must(err)
	ctx, _, err = rwlock.New(s, "d").RLocker().Lock(ctx) // want `ends this Lock is discarded`
	must(err)
	ctx, _, err = semaphore.New(s, "e", 4).Locker(2).Lock(ctx) // want `ends this Lock is discarded`
	must(err)
	ctx, _, err = redisson.NewFenced(s, "f").Lock(ctx) // want `ends this Lock is discarded`
	return err
}

func forgottenLeadership(ctx context.Context, e *election.Election) error {
	_, _, err := e.Campaign(ctx, "here") // want `ends this Campaign .* defer its Resign, or use Run`
	return err
}
