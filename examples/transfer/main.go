// Command transfer moves money between the accounts of two services, each of which can have its locks on its
// own Redis. A transfer holds the locks of both accounts. It can name the locks in any order without a
// deadlock, because it holds no lock while it waits for another.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// account is guarded by its lock, and by no mutex.
type account struct {
	lock    *rlock.Mutex
	balance int
}

// transfer moves an amount from one account to another, or returns an error.
func transfer(ctx context.Context, from, to *account, amount int) error {
	return multilock.New(from.lock, to.lock).Do(ctx, func(ctx context.Context) error {
		if from.balance < amount {
			return errTooLittle
		}
		from.balance -= amount
		to.balance += amount
		return context.Cause(ctx) // not nil if a lock was lost meanwhile
	})
}

var errTooLittle = errors.New("the balance is too small")

const (
	accounts  = 3 // number of accounts of each service
	opening   = 100
	tellers   = 8
	transfers = 25 // number of transfers of each teller
)

// run makes all transfers, and returns the sum of all balances in the end.
func run(ctx context.Context, banks, shops string, out io.Writer) (total int, err error) {
	var all []*account
	for prefix, url := range map[string]string{"bank": banks, "shop": shops} {
		rdb, err := exampleredis.Connect(url)
		if err != nil {
			return 0, err
		}
		defer rdb.Close()
		session, err := rlock.NewSession(rdb, rlock.WithPrefix(prefix))
		if err != nil {
			return 0, err
		}
		defer session.Close()
		for i := range accounts {
			all = append(all, &account{rlock.New(session, fmt.Sprintf("account:%d", i)), opening})
		}
	}
	var wg sync.WaitGroup
	errs := make(chan error, tellers*transfers)
	for range tellers {
		wg.Go(func() {
			for range transfers {
				order := rand.Perm(len(all))
				err := transfer(ctx, all[order[0]], all[order[1]], rand.IntN(opening))
				if !errors.Is(err, errTooLittle) {
					errs <- err
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	made := 0
	for e := range errs {
		if e == nil {
			made++
		}
		err = errors.Join(err, e)
	}
	for _, a := range all {
		total += a.balance
	}
	fmt.Fprintf(out, "%d transfers made, %d refused; %d accounts hold %d together, and held %d at first\n",
		made, tellers*transfers-made, len(all), total, len(all)*opening)
	return total, err
}

func main() {
	exampleredis.Main(func(ctx context.Context, url string) error {
		total, err := run(ctx, url, url, os.Stdout)
		if want := 2 * accounts * opening; err == nil && total != want {
			err = fmt.Errorf("the accounts hold %d, not %d", total, want)
		}
		return err
	})
}
