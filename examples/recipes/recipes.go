// Package recipes has the functions of docs/recipes.md. A test checks that each Go block of that page is the
// body of one of these functions.
package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/lockline/lockline/rlock"
)

// serve does work under a lock, and writes the status code for the result.
func serve(w http.ResponseWriter, r *http.Request, order rlock.Locker, work func(context.Context) error) {
	ran, code := false, http.StatusNoContent
	err := rlock.Do(r.Context(), order, func(ctx context.Context) error {
		ran = true
		err := work(ctx)
		if err != nil {
			code = http.StatusInternalServerError
		}
		return err
	}, rlock.WaitAtMost(2*time.Second))
	var locked *rlock.LockedError
	ended := errors.Is(err, rlock.ErrLost) || errors.Is(err, rlock.ErrClosed) ||
		errors.Is(err, rlock.ErrNotHeld)
	switch {
	case ran && ended: // the lock ended before the work, so another holder may have worked at the same time
		code = http.StatusConflict // 409
	case ran: // an error of Unlock changes nothing, because the session repeats the release
	case errors.As(err, &locked):
		code = http.StatusLocked // 423
		w.Header().Set("Retry-After", "2")
	default: // Redis does not answer or refuses, or the session is closed
		code = http.StatusServiceUnavailable // 503
		w.Header().Set("Retry-After", "10")
	}
	if err != nil {
		log.Print(err) // only here: the text names hosts and processes
	}
	w.WriteHeader(code)
}

// ready tries to take and release a lock, and returns an error if locks do not work.
func ready(ctx context.Context, session *rlock.Session) error {
	_, hold, err := rlock.New(session, "startup").TryLock(ctx)
	if errors.Is(err, rlock.ErrLocked) {
		return nil // another process starts, and Redis has answered
	}
	if err != nil {
		return fmt.Errorf("locks do not work: %w", err)
	}
	return hold.Unlock(ctx)
}

// once runs a job, unless the table of completed jobs has the id of the job.
func once(
	ctx context.Context, db *sql.DB, customer rlock.Locker, id string,
	work func(context.Context, *sql.Tx) error,
) error {
	return rlock.Do(ctx, customer, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		done, err := tx.ExecContext(ctx, "INSERT INTO done (job) VALUES ($1) ON CONFLICT DO NOTHING", id)
		if err != nil {
			return err
		}
		if rows, err := done.RowsAffected(); err != nil || rows == 0 {
			return err // nil if the job was done before
		}
		if err := work(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}, rlock.WaitAtMost(time.Second))
}

// fenced does work in a transaction. It rolls the transaction back if a later holder has already begun one.
func fenced(
	ctx context.Context, db *sql.DB, accounts rlock.Locker, work func(context.Context, *sql.Tx) error,
) error {
	return rlock.Do(ctx, accounts, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil) // after Lock
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after Commit
		fence, err := tx.ExecContext(ctx,
			"UPDATE fence SET token = $1 WHERE name = 'accounts' AND token <= $1",
			rlock.HoldFrom(ctx).Token())
		if err != nil {
			return err
		}
		if rows, err := fence.RowsAffected(); err != nil || rows == 0 {
			return errors.Join(err, errors.New("a later holder has begun"))
		}
		if err := work(ctx, tx); err != nil {
			return err
		}
		return tx.Commit() // before Unlock
	})
}

// deposit adds an amount to an account, once for each token.
func deposit(ctx context.Context, db *sql.DB, id, amount int, token int64) error {
	result, err := db.ExecContext(ctx,
		"UPDATE account SET balance = balance + $1, token = $2 WHERE id = $3 AND token < $2",
		amount, token, id)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 1 {
		return err
	}
	var last int64
	err = db.QueryRowContext(ctx, "SELECT token FROM account WHERE id = $1", id).Scan(&last)
	if err != nil || last == token {
		return err // nil if an earlier copy of this request was carried out
	}
	return errors.New("a later holder has written")
}
