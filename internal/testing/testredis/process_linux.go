package testredis

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// What freezes a process, and lets it go on.
const (
	StopSignal     = syscall.SIGSTOP
	ContinueSignal = syscall.SIGCONT
)

// EndWithParent has the kernel end a process with the one that starts it, because
// no Cleanup runs after a panic or a test timeout. Until then a terminal's signals do not reach it.
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
