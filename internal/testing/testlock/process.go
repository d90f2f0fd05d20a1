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

// childEnv makes a test binary a child, and has its arguments.
const childEnv = "LOCKLINE_TEST_CHILD"

// Main is testredis.Run for a package whose tests start processes of their own binary. In a process that
// Child made, it calls child with the arguments, separated by spaces, and nothing else.
func Main(m *testing.M, child func(args string), options ...goleak.Option) {
	if args, is := os.LookupEnv(childEnv); is {
		child(args)
		return
	}
	testredis.Run(m, options...)
}

// Child is a process to be started, in which Main calls the package's child.
func Child(args ...any) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.TrimSpace(fmt.Sprintln(args...)))
	return cmd
}
