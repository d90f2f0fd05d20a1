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

// A jvm is a process that runs Driver.java. Comments in Driver.java explain its protocol.
type jvm struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when all answers have been read

	mu      sync.Mutex // guards the fields below, and writes to in
	clients int
	waiting map[string]chan answer // the key is CLIENT/THREAD
}

// An answer is the result of a step of a thread. at is the time at which the result was read.
type answer struct {
	value string
	at    time.Time
	err   error
}

var (
	shared     *jvm // the JVM of all tests except for tests that kill a JVM
	sharedOnce sync.Once
)

// startJVM starts a JVM. The caller must call end.
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

// read sends each answer to the channel of its thread, until the JVM ends.
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

// end closes the input of the JVM, which makes the JVM end, and waits for its end. The JVM may have been
// killed before.
func (j *jvm) end() {
	_ = j.in.Close()
	<-j.done
	_ = j.cmd.Wait() // returns an error if the JVM was killed
}

// A client is a RedissonClient in a JVM.
type client struct {
	t  testing.TB
	j  *jvm
	id int
}

// dial makes a RedissonClient in the shared JVM, and shuts it down when the test ends. The client has
// Redisson's default mode of subscriptions.
func dial(t testing.TB, watchdog time.Duration, addrs ...string) client {
	t.Helper()
	return dialMode(t, watchdog, "-", addrs...)
}

// dialMode does the same as dial, for a client with this ShardedSubscriptionMode.
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

// A thread is a Java thread. The owner of a lock of Redisson is a thread.
type thread struct {
	client
	name string
}

func (c client) thread(name string) thread { return thread{c, name} }

// start makes the thread carry out a step, and returns a channel for the answer.
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

// try makes the thread carry out a step, and waits for the answer.
func (th thread) try(verb string, args ...any) (string, error) {
	th.t.Helper()
	a := receive(th.t, fmt.Sprint(th.name, " in the JVM: ", verb, args), th.start(verb, args...))
	return a.value, a.err
}

// do does the same as try, and fails the test if the step fails.
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

// tryLock reports whether the thread gets the lock without waiting.
func (th thread) tryLock(names ...any) bool {
	th.t.Helper()
	return th.do("tryLock", names...) == "true"
}
