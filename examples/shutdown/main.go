// Command shutdown works on jobs under locks, and ends gracefully on SIGTERM. It starts no new job, and gives
// the running jobs a moment to finish. Then it releases all remaining holds and ends all remaining waits, so
// that no other process has to wait until a lease ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/rlock"
)

// grace is the time in which running jobs may finish. An orchestrator must wait for longer than grace and the
// second that Shutdown takes at most.
const grace = time.Second

// job works for the time needs. If its context ends before that, it returns the cause.
func job(ctx context.Context, needs time.Duration) error {
	select {
	case <-time.After(needs):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx) // rlock.ErrClosed or rlock.ErrLost
	}
}

// serve works on jobs until stop ends.
func serve(stop context.Context, url string, out io.Writer) error {
	rdb, err := exampleredis.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close() // after the session, which needs the client
	session, err := rlock.NewSession(rdb, rlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}

	var (
		working sync.WaitGroup
		mu      sync.Mutex // guards out
	)
	say := func(format string, values ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", values...)
	}
	// Jobs have a context of their own, because they may finish after stop has ended.
	start := func(name string, needs time.Duration) {
		working.Go(func() {
			err := rlock.New(session, name).Do(context.Background(), func(ctx context.Context) error {
				say("%s: begun", name)
				return job(ctx, needs)
			})
			switch {
			case errors.Is(err, rlock.ErrClosed):
				say("%s: given up", name)
			case err != nil:
				say("%s: failed, %v", name, err)
			default:
				say("%s: done", name)
			}
		})
	}
	start("short job", grace/10)
	start("long job", time.Hour)
	start("long job", time.Hour) // waits for the first long job

	<-stop.Done() // from here on, no new jobs
	say("stopping")
	finished := make(chan struct{})
	go func() { working.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(grace):
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = session.Shutdown(ctx) // holds and waits end with ErrClosed
	<-finished
	say("stopped")
	return err
}

func main() {
	after := flag.Duration("after", 500*time.Millisecond,
		"send SIGTERM to this process after that; 0 leaves that to you")
	exampleredis.Main(func(ctx context.Context, url string) error {
		stop, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
		defer cancel()
		if *after > 0 {
			time.AfterFunc(*after, func() {
				if self, err := os.FindProcess(os.Getpid()); err == nil {
					_ = self.Signal(syscall.SIGTERM)
				}
			})
		}
		return serve(stop, url, os.Stdout)
	})
}
