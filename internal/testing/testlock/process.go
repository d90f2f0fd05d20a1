package testlock

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// childEnv is the environment variable with the arguments of a child process. A process of the test binary is
// a child if it has this variable.
const childEnv = "LOCKLINE_TEST_CHILD"

// Main calls testredis.Run. The TestMain of a package must call Main if its tests start child processes with
// Child. In a child process, Main only calls child. Then args has the arguments of Child, separated by
// spaces.
func Main(m *testing.M, child func(args string), options ...goleak.Option) {
	if args, is := os.LookupEnv(childEnv); is {
		child(args)
		return
	}
	testredis.Run(m, options...)
}

// Child returns a command that starts the test binary again, as a child process with these arguments, see
// Main.
func Child(args ...any) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.TrimSpace(fmt.Sprintln(args...)))
	return cmd
}
