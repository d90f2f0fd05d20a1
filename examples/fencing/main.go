// Command fencing guards a row of a database against a holder that has lost its lock and does not know it. An
// example is a process that was frozen between a read and a write. The row stores the highest fencing token
// with which it was written, and refuses writes with a lower token.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	_ "modernc.org/sqlite"

	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/rlock"
)

var errFenced = errors.New("fenced off: the row was written under a later lock")

func createTable(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `
		CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, token INTEGER NOT NULL);
		INSERT INTO account VALUES (1, 100, 0)`)
	return err
}

func balance(ctx context.Context, db *sql.DB, id int) (amount int, err error) {
	err = db.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = ?`, id).Scan(&amount)
	return amount, err
}

// setBalance writes a balance with the token of a hold. One statement compares the tokens and writes, so no
// other write can come in between. A holder may write more than once, so the comparison is <= and not <.
func setBalance(ctx context.Context, db *sql.DB, id, amount int, token int64) error {
	result, err := db.ExecContext(ctx, `UPDATE account SET balance = ?, `+
		`token = ? WHERE id = ? AND token <= ?`, amount, token, id, token)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 1 {
		return err
	}
	return errFenced
}

// withdraw takes an amount from an account under the lock. Holders usually work like this.
func withdraw(ctx context.Context, db *sql.DB, lock *rlock.Mutex, id, amount int) error {
	held, hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	now, err := balance(held, db, id)
	if err != nil {
		return err
	}
	return setBalance(held, db, id, now-amount, hold.Token())
}

func result(err error) string {
	if err != nil {
		return "refused, " + err.Error()
	}
	return "done"
}

// outcome has the results of the two withdrawals.
type outcome struct {
	fast, frozen error
	balance      int
}

func run(ctx context.Context, url string, out io.Writer) (o outcome, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return o, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection to :memory: would be a database of its own
	if err := createTable(ctx, db); err != nil {
		return o, err
	}
	rdb, err := exampleredis.Connect(url)
	if err != nil {
		return o, err
	}
	defer rdb.Close()
	session, err := rlock.NewSession(rdb, rlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return o, err
	}
	defer session.Close()
	account := rlock.New(session, "account:1")

	// The first holder takes the lock, reads the balance, and does nothing until its lease has ended.
	//lockvet:ignore this holder does not look at its context
	lost, frozen, err := account.Lock(ctx, rlock.WithLease(50*time.Millisecond))
	if err != nil {
		return o, err
	}
	defer frozen.Unlock(ctx)
	seen, err := balance(ctx, db, 1)
	if err != nil {
		return o, err
	}
	<-lost.Done()

	// Meanwhile, the second holder withdraws 30.
	o.fast = withdraw(ctx, db, account, 1, 30)
	fmt.Fprintln(out, "second holder withdraws 30:", result(o.fast))

	// The first holder does not look at its context, so it continues with the balance that it has read.
	o.frozen = setBalance(ctx, db, 1, seen-50, frozen.Token())
	fmt.Fprintln(out, "first holder withdraws 50:", result(o.frozen))

	o.balance, err = balance(ctx, db, 1)
	fmt.Fprintln(out, "balance:", o.balance)
	return o, err
}

func main() {
	exampleredis.Main(func(ctx context.Context, url string) error {
		_, err := run(ctx, url, os.Stdout)
		return err
	})
}
