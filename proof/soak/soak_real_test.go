//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/standin"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/proof/history"
)

// Leases are short here, so some expire on a busy machine: such a loss is judged like any other.

// Proves: no trace
func TestSoakFindsNothingWrongAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, theirs := range map[string]bool{"servers of its own": false, "theirs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := testredis.Shared(t) // skips where there are none
			o := options{processes: 3, duration: 2 * time.Second, lease: 500 * time.Millisecond}
			if theirs {
				o.redis = "redis://" + shared.Addr
			}
			var out bytes.Buffer
			right := false
			err := standin.Run("soak-test", func(h *standin.Host) (err error) {
				right, err = soak(t.Context(), h, o, &out)
				return err
			})
			if red := strings.Contains(out.String(), history.Red+" "); err != nil || !right ||
				red == theirs ||
				strings.Count(out.String(), "✓") != 10 {
				t.Errorf("%v\n%s", err, &out)
			}
			own := fmt.Sprintf("lockline-soak-%d:*", os.Getpid())
			if keys := shared.Client(t).Keys(t.Context(), own).Val(); theirs && len(keys) > 0 {
				t.Errorf("left in Redis: %q", keys)
			}
		})
	}
}

// A terminal's signals reach its whole process group. They come with the second row, when something has
// failed.
func TestSoakThatIsInterruptedStillJudges(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere a process that has just started still hears them")
	}
	// In the background they may be ignored, and then children ignore them, too.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGINT, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(heard) })
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			url := "redis://" + testredis.Shared(t).Addr
			cmd := exec.Command(os.Args[0], "soak", "--redis", url, "--lease", "500ms", "--for", "10s")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			pipe, err := cmd.StdoutPipe()
			testlock.Must(t, err)
			testlock.Must(t, cmd.Start())
			var out strings.Builder
			for buf := make([]byte, 4096); ; {
				n, err := pipe.Read(buf)
				before := strings.Count(out.String(), " acquisitions")
				out.Write(buf[:n])
				if now := strings.Count(out.String(), " acquisitions"); before < 2 && now >= 2 {
					_ = syscall.Kill(-cmd.Process.Pid, sig)
				}
				if err == io.EOF {
					break
				}
				testlock.Must(t, err)
			}
			err = cmd.Wait()
			if cmd.ProcessState.ExitCode() != exitInterrupted ||
				!strings.Contains(out.String(), "0 ended by themselves") {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}
