package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/rlock"
)

// serverEnv is the environment variable that makes the program a server. Its value is the URL of Redis.
const serverEnv = "EXAMPLE_STOCK_SERVER"

// way is one way to lock.
type way struct {
	name  string
	parts int // number of parts of an item's stock
	lock  func(item, part int) string
}

var ways = []way{
	{"none", 1, nil},
	{"whole", 1, func(int, int) string { return "stock" }},
	{"item", 1, func(item, _ int) string { return fmt.Sprintf("stock:%d", item) }},
	{"segment", segments, func(item, part int) string { return fmt.Sprintf("stock:%d:%d", item, part) }},
}

func stockKey(w way, item, part int) string {
	return fmt.Sprintf("example:stock:%s:%d:%d", w.name, item, part)
}

// payment has the times at which a payment began and ended, in Unix nanoseconds.
type payment struct{ begin, end int64 }

const (
	beginHeader = "Payment-Begin"
	endHeader   = "Payment-End"
)

func (p payment) put(h http.Header) {
	h.Set(beginHeader, strconv.FormatInt(p.begin, 10))
	h.Set(endHeader, strconv.FormatInt(p.end, 10))
}

func paymentOf(h http.Header) (p payment) {
	p.begin, _ = strconv.ParseInt(h.Get(beginHeader), 10, 64)
	p.end, _ = strconv.ParseInt(h.Get(endHeader), 10, 64)
	return p
}

// atOnce returns the largest number of payments that ran at the same time.
func atOnce(payments []payment) (most int) {
	for _, p := range payments {
		n := 0
		for _, other := range payments {
			if other.begin <= p.begin && p.begin < other.end {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// shop sells in one server process.
type shop struct {
	rdb     *redis.Client
	session *rlock.Session
}

// sell sells a unit of an item. sold is false if the item is sold out. sell tries the parts of the stock in
// random order, so that buyers spread over them.
func (s *shop) sell(ctx context.Context, w way, item int) (paid payment, sold bool, err error) {
	for _, part := range rand.Perm(w.parts) {
		key := stockKey(w, item, part)
		// Stock only decreases, so a buyer that finds none needs no lock.
		if n, err := s.rdb.Get(ctx, key).Int(); err != nil {
			return paid, false, err
		} else if n == 0 {
			continue
		}
		sell := func(ctx context.Context) (err error) {
			paid, sold, err = s.sellFrom(ctx, key)
			return err
		}
		if w.lock == nil {
			err = sell(ctx)
		} else {
			err = rlock.New(s.session, w.lock(item, part)).Do(ctx, sell)
		}
		if sold || err != nil {
			return paid, sold, err
		}
	}
	return paid, false, nil
}

func (s *shop) sellFrom(ctx context.Context, key string) (paid payment, sold bool, err error) {
	n, err := s.rdb.Get(ctx, key).Int()
	if err != nil || n == 0 {
		return paid, false, err
	}
	paid.begin = time.Now().UnixNano()
	time.Sleep(20 * time.Millisecond)
	paid.end = time.Now().UnixNano()
	if err := context.Cause(ctx); err != nil {
		return paid, false, err // the lock is lost, so do not write
	}
	return paid, true, s.rdb.Set(ctx, key, n-1, 0).Err()
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	item, err := strconv.Atoi(r.PathValue("item"))
	for _, way := range ways {
		if err != nil || way.name != r.PathValue("way") {
			continue
		}
		paid, sold, err := s.sell(r.Context(), way, item)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case sold:
			paid.put(w.Header())
			w.WriteHeader(http.StatusNoContent)
		default:
			http.Error(w, "sold out", http.StatusGone)
		}
		return
	}
	http.NotFound(w, r)
}

// serve writes its address and sells until it is killed.
func serve(url string) error {
	rdb, err := exampleredis.Connect(url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	session, err := rlock.NewSession(rdb)
	if err != nil {
		return err
	}
	defer session.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "http://%s\n", listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("POST /buy/{way}/{item}", &shop{rdb, session})
	return http.Serve(listener, mux)
}
