// Command httpowner serves HTTP with a middleware that makes each request one owner of the locks that are
// taken below it. So each layer of a program can take the locks that it needs without knowing the other
// layers. The layers only pass on the context of the request.
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

// owners returns the middleware.
func owners(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(rlock.WithOwner(r.Context())))
	})
}

// carts is the layer that stores carts. Each method takes the lock of its cart by itself, because the methods
// have several callers.
type carts struct {
	session *rlock.Session
	items   sync.Map      // number of items by id; the lock of a cart guards its entry
	wait    time.Duration // longest wait for a lock
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

// add belongs to the layer above, and its lock covers both calls. As is usual in code with many layers, add
// passes on the context of the request, not the context that Lock returns.
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

// fail writes a status that shows the client whether it should try again.
func fail(w http.ResponseWriter, err error) {
	if errors.Is(err, rlock.ErrLocked) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	http.Error(w, "internal error", http.StatusInternalServerError)
}

// run lets n clients add an item to one cart at the same time. It returns how many clients succeeded, and how
// many items the cart has then.
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
