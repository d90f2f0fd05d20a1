// Three workers wait for a fair lock in order, and a caller that does not wait for long does not get the
// lock.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/rlock"
	"github.com/redis/go-redis/v9"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	session, err := rlock.NewSession(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	printer := fairlock.New(session, "printer")

	_, hold, err := printer.Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	_, _, err = printer.Lock(context.Background(), rlock.WaitAtMost(50*time.Millisecond))
	var locked *rlock.LockedError
	if errors.As(err, &locked) {
		fmt.Println("too long a wait for", locked.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := printer.Lock(ctx); errors.Is(err, context.DeadlineExceeded) {
		fmt.Println("timeout")
	}

	inLine := func() int {
		state, err := printer.Inspect(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		return len(state.Queue)
	}
	for inLine() > 0 { // waiters that gave up may leave a moment later
		time.Sleep(time.Millisecond)
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			err := printer.Do(context.Background(), func(context.Context) error {
				fmt.Println("worker", i)
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		})
		for inLine() <= i {
			time.Sleep(time.Millisecond)
		}
	}
	if err := hold.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
	wg.Wait()
}
