package fairlock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

const (
	lockKey   = "lockline:f:{x}"
	memoryKey = "lockline:f:{x}:t"
	queueKey  = "lockline:f:{x}:q"
	aliveKey  = "lockline:f:{x}:a"
	aboutKey  = "lockline:f:{x}:d"

	patience = 30 * time.Second
)

var (
	bg    = context.Background()
	quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
)

func TestMain(m *testing.M) {
	if os.Getenv(waiterEnv) != "" {
		waitForEver()
		return
	}
	testredis.ManyAtOnce()
	goleak.VerifyTestMain(m)
}

func newSession(t testing.TB, rdb rlock.Client, options ...rlock.SessionOption) *rlock.Session {
	t.Helper()
	s, err := rlock.NewSession(rdb, append([]rlock.SessionOption{rlock.WithLogger(quiet)}, options...)...)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lock(t testing.TB, m *rlock.Mutex, options ...rlock.Option) *rlock.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, patience)
	t.Cleanup(cancel)
	_, hold, err := m.Lock(ctx, options...)
	must(t, err)
	return hold
}

func unlock(t testing.TB, hold *rlock.Hold) {
	t.Helper()
	must(t, hold.Unlock(bg))
}

func queued(t testing.TB, rdb redis.Cmdable) int {
	t.Helper()
	about, err := rdb.HVals(bg, aboutKey).Result()
	must(t, err)
	n := 0
	for _, a := range about {
		var group int
		_, err := fmt.Sscan(a, &group)
		must(t, err)
		n += group
	}
	return n
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
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
	l.ctx, l.ends = context.WithTimeout(bg, 4*patience)
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
	eventually(l.t, "in the queue", func() bool { return queued(l.t, l.rdb) > before })
}

// next waits for the next grant.
func (l *line) next() arrival {
	l.t.Helper()
	select {
	case a := <-l.got:
		must(l.t, a.err)
		return a
	case <-time.After(patience):
		l.t.Fatal("nobody is granted the lock")
		return arrival{}
	}
}

func script(t testing.TB, file string) *redis.Script {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return redis.NewScript(string(text))
}

// kindOf names the script of a request.
func kindOf(t testing.TB) func(r faultproxy.Request) string {
	kinds := map[string]string{script(t, "../internal/protocol/keep.lua").Hash(): "keep"}
	for _, name := range []string{"lock", "release", "heartbeat", "force", "inspect"} {
		kinds[script(t, name+".lua").Hash()] = name
	}
	return func(r faultproxy.Request) string {
		if r.Is("EVAL") { // the first time, the body itself
			return kinds[redis.NewScript(r.Script()).Hash()]
		}
		return kinds[r.Script()]
	}
}

// Processes that wait for ever, to be killed.

const waiterEnv = "LOCKLINE_TEST_WAITER"

func waitForEver() {
	addr, liveness, _ := strings.Cut(os.Getenv(waiterEnv), " ")
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

// startWaiters starts a process with ten waiters; its grants come on the channel.
func startWaiters(t testing.TB, addr string, liveness time.Duration) (*exec.Cmd, <-chan string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", waiterEnv, addr, liveness))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
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
		unlock(l.t, got.hold)
	}
}

// observe hears of events by a function.
type observe func(rlock.Event)

func (f observe) Observe(_ context.Context, e rlock.Event) { f(e) }
