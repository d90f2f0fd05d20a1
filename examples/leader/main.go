// Command leader lets one worker of a group of three work at a time. The first leader is cut off from Redis.
// Its context ends before its lease, so it has stopped when another worker takes over. The second leader is
// shut down, so the third worker leads at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/rlock"
)

// lease is short, so that the example does not take long. For real programs, the default of 15 s is better.
const lease = time.Second

// lead runs work whenever this process is the leader, until ctx ends or the session is closed. work must
// return when its own context ends, because then the lock is lost, or about to be.
func lead(ctx context.Context, lock *rlock.Mutex, work func(ctx context.Context)) error {
	for ctx.Err() == nil {
		leading, hold, err := lock.Lock(ctx)
		switch {
		case errors.Is(err, rlock.ErrClosed):
			return err
		case err != nil: // for example, Redis is down
			select {
			case <-time.After(lease / 4):
			case <-ctx.Done():
			}
			continue
		}
		work(leading)
		_ = hold.Unlock(ctx)
	}
	return ctx.Err()
}

// worker is one member of the group.
type worker struct {
	number  int
	rdb     *redis.Client
	session *rlock.Session
}

func newWorker(url string, number int) (*worker, error) {
	rdb, err := exampleredis.Connect(url)
	if err != nil {
		return nil, err
	}
	session, err := rlock.NewSession(rdb, rlock.WithWatchdogTimeout(lease),
		rlock.WithLogger(slog.New(slog.DiscardHandler)))
	return &worker{number, rdb, session}, err
}

// change is the beginning or the end of a leadership.
type change struct {
	worker  int
	leading bool
	why     error // reason for which the leadership ended
}

func (c change) String() string {
	if c.leading {
		return fmt.Sprintf("worker %d leads", c.worker)
	}
	return fmt.Sprintf("worker %d has stopped: %v", c.worker, c.why)
}

// run lets three workers lead one after another, and returns the changes in their order.
func run(ctx context.Context, url string, out io.Writer) (history []change, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	news := make(chan change, 100)
	workers := map[int]*worker{}
	for number := 1; number <= 3; number++ {
		w, err := newWorker(url, number)
		if err != nil {
			return nil, err
		}
		defer w.rdb.Close()
		defer w.session.Close()
		workers[number] = w
		all.Go(func() {
			_ = lead(ctx, rlock.New(w.session, "leader"), func(ctx context.Context) {
				news <- change{worker: w.number, leading: true}
				<-ctx.Done() // real work looks at ctx at each step
				news <- change{worker: w.number, why: context.Cause(ctx)}
			})
		})
	}
	// next waits until the previous leader has stopped and another worker leads. The two changes may arrive
	// in either order.
	next := func() (*worker, error) {
		stopped, leads := len(history) == 0, (*change)(nil)
		for !stopped || leads == nil {
			select {
			case c := <-news:
				if c.leading {
					leads = &c
					continue
				}
				stopped = true
				history = append(history, c)
			case <-time.After(30 * time.Second):
				return nil, errors.New("nobody leads")
			}
		}
		history = append(history, *leads)
		for _, c := range history[max(0, len(history)-2):] {
			fmt.Fprintln(out, c)
		}
		return workers[leads.worker], nil
	}

	first, err := next()
	if err != nil {
		return history, err
	}
	_ = first.rdb.Close() // now no renewal reaches Redis, as if the network were gone
	second, err := next()
	if err != nil {
		return history, err
	}
	_ = second.session.Close() // a clean shutdown
	_, err = next()
	return history, err
}

func main() {
	exampleredis.Main(func(ctx context.Context, url string) error {
		_, err := run(ctx, url, os.Stdout)
		return err
	})
}
