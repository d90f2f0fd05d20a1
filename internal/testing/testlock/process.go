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

// childEnv is an environment variable with the arguments of a child. A test binary that has it is a child.
const childEnv = "LOCKLINE_TEST_CHILD"

// Main calls testredis.Run, for a package whose tests start processes of their own binary. In a process of
// Child, it only calls child with the arguments, separated by spaces.
func Main(m *testing.M, child func(args string), options ...goleak.Option) {
	if args, is := os.LookupEnv(childEnv); is {
		child(args)
		return
	}
	testredis.Run(m, options...)
}

// Child returns a command that starts the test binary again. Main then calls child with these arguments.
func Child(args ...any) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.TrimSpace(fmt.Sprintln(args...)))
	return cmd
}
