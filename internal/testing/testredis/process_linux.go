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

// EndWithParent returns attributes with which the kernel ends a process together with its parent. Servers
// need these attributes because no Cleanup runs after a panic or a timeout of the test. Signals of a
// terminal, such as Ctrl-C, do not reach a process with these attributes.
func EndWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func standsStill(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The format is "pid (name) state ...". The name may contain any characters.
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T"))
}
