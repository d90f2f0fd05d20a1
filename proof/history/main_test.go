package history_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/proof/history"
)

// actorEnv is a variable of the environment. If it is set, the test binary runs as one of the processes.
const actorEnv = "LOCKLINE_TEST_ACTOR"

func TestMain(m *testing.M) {
	if os.Getenv(actorEnv) != "" {
		if err := history.Work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testredis.Run(m)
}

func actor() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), actorEnv+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}
