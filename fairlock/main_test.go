package fairlock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

const (
	lockKey   = "lockline:f:{x}"
	memoryKey = "lockline:f:{x}:t"
	queueKey  = "lockline:f:{x}:q"
	aliveKey  = "lockline:f:{x}:a"
	aboutKey  = "lockline:f:{x}:d"
)

var bg = context.Background()

func TestMain(m *testing.M) {
	testlock.Main(m, func(args string) {
		if words := strings.Fields(args); words[0] == "many" {
			n, err := strconv.Atoi(words[3])
			if err != nil {
				panic(err)
			}
			manySessions(words[1], words[2], n)
		}
		tenWaiters(args)
	})
}

func queued(t testing.TB, rdb redis.Cmdable) int {
	t.Helper()
	about, err := rdb.HVals(bg, aboutKey).Result()
	testlock.Must(t, err)
	n := 0
	for _, a := range about {
		var group int
		_, err := fmt.Sscan(a, &group)
		testlock.Must(t, err)
		n += group
	}
	return n
}

// line lets goroutines lock one name, each known to stand behind the one before it.
type line struct {
	t    testing.TB
	rdb  redis.Cmdable
	wg   sync.WaitGroup
	got  chan arrival
	ends context.CancelFunc
	ctx  context.Context
}

// arrival is one grant: who, in the order of asking.
type arrival struct {
	who  int
	hold *rlock.Hold
	err  error
}

func newLine(t testing.TB, rdb redis.Cmdable) *line {
	l := &line{t: t, rdb: rdb, got: make(chan arrival, 1000)}
	l.ctx, l.ends = context.WithTimeout(bg, 4*testlock.Patience)
	t.Cleanup(func() { l.ends(); l.wg.Wait() })
	return l
}

// join starts a waiter and returns when it stands in the queue.
func (l *line) join(m *rlock.Mutex, who int, options ...rlock.Option) {
	l.t.Helper()
	before := queued(l.t, l.rdb)
	l.wg.Go(func() {
		_, hold, err := m.Lock(l.ctx, options...)
		l.got <- arrival{who, hold, err}
	})
	testlock.Eventually(l.t, "in the queue", func() bool { return queued(l.t, l.rdb) > before })
}

// next waits for the next grant.
func (l *line) next() arrival {
	l.t.Helper()
	a := testlock.Receive(l.t, "granted", l.got)
	testlock.Must(l.t, a.err)
	return a
}

func script(t testing.TB, file string) *redis.Script {
	t.Helper()
	text, err := os.ReadFile(file)
	testlock.Must(t, err)
	return redis.NewScript(string(text))
}

// kindOf names the script of a request.
func kindOf(t testing.TB) func(r faultproxy.Request) string {
	kinds := map[string]string{script(t, "../internal/protocol/keep.lua").Hash(): "keep"}
	for _, name := range []string{"lock", "release", "heartbeat", "force", "inspect"} {
		kinds[script(t, "../internal/queue/"+name+".lua").Hash()] = name
	}
	return func(r faultproxy.Request) string {
		if r.Is("EVAL") { // the first time, the body itself
			return kinds[redis.NewScript(r.Script()).Hash()]
		}
		return kinds[r.Script()]
	}
}

// tenWaiters is a process that waits until it is killed.
func tenWaiters(args string) {
	addr, liveness, _ := strings.Cut(args, " ")
	d, err := time.ParseDuration(liveness)
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	s, err := rlock.NewSession(rdb, rlock.WithLiveness(d))
	if err != nil {
		panic(err)
	}
	for range 10 {
		go func() {
			_, hold, err := fairlock.New(s, "x").Lock(bg)
			fmt.Println("granted", hold.Token(), err)
		}()
	}
	select {}
}

// startWaiters starts a process of tenWaiters; its grants come on the channel.
func startWaiters(t testing.TB, addr string, liveness time.Duration) (*exec.Cmd, <-chan string) {
	t.Helper()
	cmd := testlock.Child(addr, liveness)
	out, err := cmd.StdoutPipe()
	testlock.Must(t, err)
	testlock.Must(t, cmd.Start())
	lines := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return cmd, lines
}

// serve lets the next n in, one after the other, who must come in the order of asking.
func (l *line) serve(n int) {
	l.t.Helper()
	for i := range n {
		got := l.next()
		if got.who != i {
			l.t.Errorf("waiter %d is served as number %d", got.who, i)
		}
		testlock.Unlock(l.t, got.hold)
	}
}
