package locktest_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// inBothTimes runs a test in a synctest bubble, and in real time.
func inBothTimes(t *testing.T, test func(t *testing.T)) {
	t.Run("fake time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
	t.Run("real time", func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

// judged is a testing.TB whose failures do not fail the real test. It collects the functions that are passed
// to Cleanup, and judge runs them.
type judged struct {
	testing.TB
	mu       sync.Mutex // guards the fields below
	said     []string
	cleanups []func()
}

func (j *judged) Helper() {}

func (j *judged) Errorf(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.said = append(j.said, fmt.Sprintf(format, args...))
}

func (j *judged) Error(args ...any) { j.Errorf("%s", fmt.Sprint(args...)) }

func (j *judged) Fatalf(format string, args ...any) {
	j.Errorf(format, args...)
	runtime.Goexit()
}

func (j *judged) Fatal(args ...any) { j.Fatalf("%s", fmt.Sprint(args...)) }

func (j *judged) Cleanup(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cleanups = append(j.cleanups, f)
}

// judge runs a test that may fail, with its cleanups, and returns the messages of the failures.
func judge(t testing.TB, test func(t testing.TB)) []string {
	t.Helper()
	j := &judged{TB: t}
	run := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
	run(func() { test(j) })
	for _, f := range slices.Backward(j.cleanups) {
		run(f)
	}
	return j.said
}

// logged is a testing.TB whose output can be read.
type logged struct {
	testing.TB
	out io.Writer
}

func (l *logged) Output() io.Writer { return l.out }

// example takes the place of testing.T in an example. A failure shows in the output.
type example struct{ judged }

func newT() *example { return new(example) }

func (e *example) Errorf(format string, args ...any) { fmt.Printf("FAIL: "+format+"\n", args...) }
func (e *example) Error(args ...any)                 { fmt.Println(append([]any{"FAIL:"}, args...)...) }
func (e *example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (e *example) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (e *example) Output() io.Writer                 { return io.Discard }

func (e *example) end() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}
