//go:build nightly

package redisson

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// jvm is a JVM that runs Driver.java, whose protocol is explained there.
type jvm struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when all answers have been read

	mu      sync.Mutex // guards the rest, and writing to in
	clients int
	waiting map[string]chan answer // by CLIENT/THREAD
}

// answer is what a thread says of a step, and when that was heard.
type answer struct {
	value string
	at    time.Time
	err   error
}

var (
	shared     *jvm // one JVM serves all tests but those that kill it
	sharedOnce sync.Once
)

// startJVM starts a JVM of the test's own.
func startJVM(t testing.TB) *jvm {
	t.Helper()
	needJVM(t)
	path, err := os.ReadFile(classpath)
	testlock.Must(t, err)
	j := &jvm{
		cmd: exec.Command("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp",
			"target/classes:"+string(path), "lockline.interop.Driver"),
		done:    make(chan struct{}),
		waiting: map[string]chan answer{},
	}
	j.cmd.Stderr = os.Stderr
	j.in, err = j.cmd.StdinPipe()
	testlock.Must(t, err)
	out, err := j.cmd.StdoutPipe()
	testlock.Must(t, err)
	testlock.Must(t, j.cmd.Start())
	go j.read(out)
	return j
}

// read passes the answers on until the JVM ends.
func (j *jvm) read(out io.Reader) {
	defer close(j.done)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		id, rest, _ := strings.Cut(lines.Text(), " ")
		status, value, _ := strings.Cut(rest, " ")
		a := answer{value: value, at: time.Now()}
		if status != "ok" {
			a.err = fmt.Errorf("%s: %s", status, value)
		}
		j.mu.Lock()
		c := j.waiting[id]
		delete(j.waiting, id)
		j.mu.Unlock()
		if c != nil {
			c <- a
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.waiting {
		c <- answer{err: io.EOF}
	}
	j.waiting = nil
}

// end lets the JVM end, or reaps one that was killed.
func (j *jvm) end() {
	_ = j.in.Close()
	<-j.done
	_ = j.cmd.Wait() // its exit code says whether it was killed
}

// client is a RedissonClient.
type client struct {
	t  testing.TB
	j  *jvm
	id int
}

// dial makes a RedissonClient in the shared JVM, for the length of the test. Its mode of subscriptions is
// Redisson's default.
func dial(t testing.TB, watchdog time.Duration, addrs ...string) client {
	t.Helper()
	return dialMode(t, watchdog, "-", addrs...)
}

// dialMode is dial with a ShardedSubscriptionMode.
func dialMode(t testing.TB, watchdog time.Duration, mode string, addrs ...string) client {
	t.Helper()
	needJVM(t)
	sharedOnce.Do(func() { shared = startJVM(t) })
	c := shared.dial(t, watchdog, mode, addrs...)
	t.Cleanup(func() { c.thread("main").do("shutdown") })
	return c
}

func (j *jvm) dial(t testing.TB, watchdog time.Duration, mode string, addrs ...string) client {
	t.Helper()
	j.mu.Lock()
	j.clients++
	c := client{t, j, j.clients}
	j.mu.Unlock()
	args := []any{watchdog.Milliseconds(), mode}
	for _, addr := range addrs {
		args = append(args, "redis://"+addr)
	}
	c.thread("main").do("connect", args...)
	return c
}

// thread is a Java thread, which is what holds a lock of Redisson.
type thread struct {
	client
	name string
}

func (c client) thread(name string) thread { return thread{c, name} }

// start has the thread do something, and returns what will tell the outcome.
func (th thread) start(verb string, args ...any) <-chan answer {
	id := fmt.Sprintf("%d/%s", th.id, th.name)
	c := make(chan answer, 1)
	j := th.j
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.waiting == nil {
		c <- answer{err: io.EOF}
		return c
	}
	j.waiting[id] = c
	if _, err := fmt.Fprintln(j.in, strings.TrimSpace(id+" "+verb+" "+fmt.Sprintln(args...))); err != nil {
		delete(j.waiting, id)
		c <- answer{err: err}
	}
	return c
}

// try has the thread do something and waits until it is done.
func (th thread) try(verb string, args ...any) (string, error) {
	th.t.Helper()
	a := receive(th.t, fmt.Sprint(th.name, " in the JVM: ", verb, args), th.start(verb, args...))
	return a.value, a.err
}

// do is try for what must work.
func (th thread) do(verb string, args ...any) string {
	th.t.Helper()
	value, err := th.try(verb, args...)
	if err != nil {
		th.t.Fatalf("%s in the JVM: %s %v: %v", th.name, verb, args, err)
	}
	return value
}

func (th thread) number(verb string, args ...any) int64 {
	th.t.Helper()
	n, err := strconv.ParseInt(th.do(verb, args...), 10, 64)
	testlock.Must(th.t, err)
	return n
}

// tryLock is whether the thread got the lock, which it waits for in no case.
func (th thread) tryLock(names ...any) bool {
	th.t.Helper()
	return th.do("tryLock", names...) == "true"
}
