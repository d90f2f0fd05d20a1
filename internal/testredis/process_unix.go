//go:build unix && !linux

package testredis

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

func endWithParent() *syscall.SysProcAttr { return nil } // only Linux can

func standsStill(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "T")
}
