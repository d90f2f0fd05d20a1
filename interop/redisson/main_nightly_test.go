//go:build nightly

package redisson

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// tests has the tests of this package. Its method Run ends the shared JVM before goleak looks for goroutines.
type tests struct{ *testing.M }

func (m tests) Run() int {
	defer func() {
		if shared != nil {
			shared.end()
		}
	}()
	return m.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

var bg = context.Background()

// needJVM builds the driver. If LOCKLINE_REQUIRE_JVM is not 1, it skips the test instead.
func needJVM(t testing.TB) {
	t.Helper()
	if os.Getenv("LOCKLINE_REQUIRE_JVM") != "1" {
		t.Skip("SKIPPED: Redisson on the other side: needs a JDK and Maven; " +
			"run it with LOCKLINE_REQUIRE_JVM=1")
	}
	testlock.Must(t, build())
}

// build compiles the driver, and downloads Redisson if this machine does not have it yet.
var build = sync.OnceValue(func() error {
	out, err := exec.Command("mvn", "-q", "-B", "compile", "dependency:build-classpath",
		"-Dmdep.outputFile="+classpath).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("mvn: %w\n%s", err, out)
	}
	return err
})

const classpath = "target/classpath"

// waiter starts a goroutine that calls Lock. It returns a channel that gets the results.
func waiter(l rlock.Locker) <-chan grant {
	c := make(chan grant, 1)
	go func() {
		_, hold, err := l.Lock(bg)
		c <- grant{hold, time.Now(), err}
	}()
	return c
}

type grant struct {
	hold *rlock.Hold
	at   time.Time
	err  error
}

// granted waits for the results of a waiter, and fails the test if Lock has returned an error.
func granted(t testing.TB, c <-chan grant) grant {
	t.Helper()
	g := receive(t, "Lock", c)
	if g.err != nil {
		t.Fatalf("Lock: %v", g.err)
	}
	return g
}

// patience is the longest time for which a test waits for one event. It is enough on a slow machine, even for
// the start of a JVM.
const patience = time.Minute

func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("still not: %s", what)
	}
	panic("unreachable")
}

// eventually waits until ok returns true. It calls ok every 2 ms.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// subscribed waits until one of the nodes has a subscriber of the lock's channel, sharded or not.
func subscribed(t testing.TB, name string, nodes ...*redis.Client) {
	t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	eventually(t, "a subscription to "+channel, func() bool {
		return slices.ContainsFunc(nodes, func(node *redis.Client) bool {
			return node.PubSubNumSub(bg, channel).Val()[channel] > 0 ||
				node.PubSubShardNumSub(bg, channel).Val()[channel] > 0
		})
	})
}
