package testredis

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// Signals that stop and continue a process.
const (
	StopSignal     = syscall.SIGSTOP
	ContinueSignal = syscall.SIGCONT
)

// EndWithParent returns attributes with which the kernel ends a process together with its parent. This is
// necessary because no Cleanup runs after a panic or a timeout of the test. Signals of a terminal do not
// reach the process.
func EndWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func standsStill(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// "pid (name) state ...", and a name may contain anything.
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T"))
}
