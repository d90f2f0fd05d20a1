//go:build unix && !linux

package testredis

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// What freezes a process, and lets it go on.
const (
	StopSignal     = syscall.SIGSTOP
	ContinueSignal = syscall.SIGCONT
)

// EndWithParent does nothing: only Linux can.
func EndWithParent() *syscall.SysProcAttr { return nil }

func standsStill(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "T")
}
