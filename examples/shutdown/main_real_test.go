package main

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

const programEnv = "EXAMPLE_SHUTDOWN"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestOnSIGTERMJobsFinishOrEndAndNothingStaysLocked(t *testing.T) {
	t.Parallel()
	url := "redis://" + testredis.Embedded(t).Addr()
	program := exec.Command(os.Args[0], "--after", "0") // arguments in kubernetes.yaml and worker.service
	program.Env = append(os.Environ(), programEnv+"=1", "REDIS_URL="+url)
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(30*time.Second, func() { _ = program.Process.Kill() })
	defer kill.Stop()

	rdb, err := exampleredis.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	session, err := rlock.NewSession(rdb)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()

	var said []string
	begun := 0
	for lines := bufio.NewScanner(output); lines.Scan(); {
		said = append(said, lines.Text())
		if !strings.HasSuffix(lines.Text(), ": begun") {
			continue
		}
		if begun++; begun == 2 { // both jobs have begun
			if err := program.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}
	if err := program.Wait(); err != nil {
		t.Error(err)
	}
	// If the program had not released its locks, their leases of 15 s would not have ended yet.
	for _, name := range []string{"short job", "long job"} {
		_, hold, err := rlock.New(session, name).TryLock(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = hold.Unlock(t.Context())
	}
	slices.Sort(said)
	want := []string{"long job: begun", "long job: given up", "long job: given up", "short job: begun",
		"short job: done", "stopped", "stopping"}
	if !slices.Equal(said, want) {
		t.Errorf("it said %q, want %q", said, want)
	}
}
