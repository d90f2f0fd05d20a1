// Command httpowner serves HTTP with a middleware that makes each request one owner
// of the locks that are taken below it. So the layers of a program can each lock what
// they need without knowing of each other, and without handing down more than the
// request's context.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/rlock"
)

// owners is the middleware.
func owners(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(rlock.WithOwner(r.Context())))
	})
}

// carts is the layer that keeps them. It locks by itself: it has other callers, too.
type carts struct {
	session *rlock.Session
	items   sync.Map      // id -> int; each guarded by the lock of its cart
	wait    time.Duration // for a cart, at most
}

func (c *carts) lock(id string) *rlock.Mutex {
	return rlock.New(c.session, "cart:"+id, rlock.WaitAtMost(c.wait))
}

func (c *carts) get(ctx context.Context, id string) (n int, err error) {
	err = c.lock(id).Do(ctx, func(context.Context) error {
		if v, ok := c.items.Load(id); ok {
			n = v.(int)
		}
		return nil
	})
	return n, err
}

func (c *carts) set(ctx context.Context, id string, n int) error {
	return c.lock(id).Do(ctx, func(context.Context) error {
		c.items.Store(id, n)
		return nil
	})
}

// add is the layer above: its lock spans both calls. It passes on the request's
// context and not the one that Lock returns, as code with many layers does.
func (c *carts) add(ctx context.Context, id string) error {
	_, hold, err := c.lock(id).Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	n, err := c.get(ctx, id)
	if err != nil {
		return err
	}
	return c.set(ctx, id, n+1)
}

func (c *carts) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /carts/{id}/items", func(w http.ResponseWriter, r *http.Request) {
		if err := c.add(r.Context(), r.PathValue("id")); err != nil {
			fail(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /carts/{id}", func(w http.ResponseWriter, r *http.Request) {
		n, err := c.get(r.Context(), r.PathValue("id"))
		if err != nil {
			fail(w, err)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]int{"items": n})
	})
	return mux
}

// fail tells the client apart what it can do about it.
func fail(w http.ResponseWriter, err error) {
	if errors.Is(err, rlock.ErrLocked) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	http.Error(w, "internal error", http.StatusInternalServerError)
}

// run has n clients put something into one cart at once, and returns how many
// succeeded and what is in it then.
func run(
	ctx context.Context, url string, n int, middleware func(http.Handler) http.Handler, wait time.Duration,
	out io.Writer,
) (succeeded, items int, err error) {
	rdb, err := exampleredis.Connect(url)
	if err != nil {
		return 0, 0, err
	}
	defer rdb.Close()
	session, err := rlock.NewSession(rdb, rlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return 0, 0, err
	}
	defer session.Close()
	c := &carts{session: session, wait: wait}
	server := httptest.NewServer(middleware(c.routes()))
	defer server.Close()
	client := server.Client()

	answers := make(chan int)
	for range n {
		go func() {
			request, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/carts/7/items", nil)
			response, err := client.Do(request)
			if err != nil {
				answers <- 0
				return
			}
			response.Body.Close()
			answers <- response.StatusCode
		}()
	}
	for range n {
		if <-answers == http.StatusNoContent {
			succeeded++
		}
	}
	items, err = c.get(ctx, "7")
	fmt.Fprintf(out, "%d of %d requests succeeded, the cart has %d items\n", succeeded, n, items)
	return succeeded, items, err
}

func main() {
	exampleredis.Main(func(ctx context.Context, url string) error {
		_, _, err := run(ctx, url, 50, owners, 5*time.Second, os.Stdout)
		return err
	})
}
