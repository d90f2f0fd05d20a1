// Command stock sells limited stock through two server processes to 400 clients, which all come at the same
// time. It compares sales without a lock, with one lock for the whole stock, with a lock for each item, and
// with a lock for each segment of an item's stock. A sale reads the stock, waits for the payment, and writes
// the stock. Without a lock, units are sold twice. The more locks there are, the more payments can run at the
// same time.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/examples/internal/exampleredis"
)

const (
	servers  = 2
	requests = 400
	items    = 4
	units    = 50 // units of each item; twice as many clients want one
	segments = 5  // segments of an item, if its stock is split
)

// sale has the results of one way to lock.
type sale struct {
	way           string
	sold, refused int
	failed        int
	left          int // units in stock afterwards
	atOnce        int // largest number of payments that ran at the same time
	took          time.Duration
	waits         []time.Duration // waits of the clients, sorted
}

func (s sale) oversold() int { return s.sold + s.left - items*units }

// run sells the stock once for each way to lock.
func run(ctx context.Context, url string, out io.Writer) (sales []sale, err error) {
	rdb, err := exampleredis.Connect(url)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	shops, stop, err := startServers(ctx, url)
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, way := range ways {
		if err := fill(ctx, rdb, way); err != nil {
			return sales, err
		}
		s := buy(ctx, shops, way.name)
		if s.left, err = left(ctx, rdb, way); err != nil {
			return sales, err
		}
		sales = append(sales, s)
	}
	print(out, sales)
	return sales, nil
}

func print(out io.Writer, sales []sale) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "lock\tsold\trefused\tleft\toversold\tat once\ttook\tmedian\tlongest\t")
	for _, s := range sales {
		ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t\n",
			s.way, s.sold, s.refused, s.left, s.oversold(), s.atOnce,
			ms(s.took), ms(s.waits[len(s.waits)/2]), ms(s.waits[len(s.waits)-1]))
	}
	_ = w.Flush()
}

// buy lets all clients send their requests at the same time, half of them to each server.
func buy(ctx context.Context, shops []string, way string) sale {
	s := sale{way: way}
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: requests}}
	defer client.CloseIdleConnections()
	var (
		mu   sync.Mutex // guards s and paid
		paid []payment
		all  sync.WaitGroup
	)
	begin := time.Now()
	for i := range requests {
		all.Go(func() {
			code := 0
			var p payment
			request, _ := http.NewRequestWithContext(ctx, http.MethodPost,
				fmt.Sprintf("%s/buy/%s/%d", shops[i%servers], way, i/servers%items), nil)
			if response, err := client.Do(request); err == nil {
				_ = response.Body.Close()
				code = response.StatusCode
				p = paymentOf(response.Header)
			}
			mu.Lock()
			defer mu.Unlock()
			s.waits = append(s.waits, time.Since(begin))
			switch code {
			case http.StatusNoContent:
				s.sold++
				paid = append(paid, p)
			case http.StatusGone:
				s.refused++
			default:
				s.failed++
			}
		})
	}
	all.Wait()
	s.took = time.Since(begin)
	slices.Sort(s.waits)
	s.atOnce = atOnce(paid)
	return s
}

// startServers starts this program again, as processes that sell. stop ends them.
func startServers(ctx context.Context, url string) (shops []string, stop func(), err error) {
	var running []*exec.Cmd
	stop = func() {
		for _, s := range running {
			_ = s.Process.Kill()
			_ = s.Wait()
		}
	}
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	for range servers {
		s := exec.CommandContext(ctx, program)
		s.Env = append(os.Environ(), serverEnv+"="+url)
		s.Stderr = os.Stderr
		says, err := s.StdoutPipe()
		if err == nil {
			err = s.Start()
		}
		if err != nil {
			stop()
			return nil, nil, err
		}
		running = append(running, s)
		address := make([]byte, 64)
		n, err := says.Read(address)
		if err != nil {
			stop()
			return nil, nil, errors.New("a server did not start")
		}
		shops = append(shops, strings.TrimSpace(string(address[:n])))
	}
	return shops, stop, nil
}

func fill(ctx context.Context, rdb *redis.Client, w way) error {
	for item := range items {
		for part := range w.parts {
			if err := rdb.Set(ctx, stockKey(w, item, part), units/w.parts, 0).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// left returns the number of units in stock, and deletes the stock.
func left(ctx context.Context, rdb *redis.Client, w way) (sum int, err error) {
	for item := range items {
		for part := range w.parts {
			n, err := rdb.GetDel(ctx, stockKey(w, item, part)).Int()
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}

func main() {
	if url := os.Getenv(serverEnv); url != "" {
		log.Fatal(serve(url))
	}
	exampleredis.Main(func(ctx context.Context, url string) error {
		_, err := run(ctx, url, os.Stdout)
		return err
	})
}
