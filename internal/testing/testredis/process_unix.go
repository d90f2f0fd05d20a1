//go:build unix && !linux

package testredis

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Signals that stop and continue a process.
const (
	StopSignal     = syscall.SIGSTOP
	ContinueSignal = syscall.SIGCONT
)

// EndWithParent returns nil, because only Linux can end a process with its parent.
func EndWithParent() *syscall.SysProcAttr { return nil }

func standsStill(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "T")
}
