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

// The leases in these tests are short, so some may expire on a busy machine. Such a loss is judged like any
// other loss.

// Proves: no trace
func TestSoakFindsNothingWrongAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, theirs := range map[string]bool{"servers of its own": false, "theirs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := testredis.Shared(t) // skips the test if there is no binary of the server
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

// A signal from a terminal reaches all processes of its process group. The test sends the signal after the
// second row of the output, when some faults have happened.
func TestSoakThatIsInterruptedStillJudges(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere a process that has just started still hears them")
	}
	// If this process runs in the background, it may ignore these signals, and then its children ignore them,
	// too. Notify ends that.
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
