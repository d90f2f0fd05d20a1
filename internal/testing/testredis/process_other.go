//go:build !unix

package testredis

import "syscall"

// This system cannot stop a process, so Freeze and Thaw fail the test.
const (
	StopSignal     = syscall.Signal(-1)
	ContinueSignal = syscall.Signal(-1)
)

// EndWithParent returns nil, because only Linux can end a process with its parent.
func EndWithParent() *syscall.SysProcAttr { return nil }

func standsStill(int) bool { return true }
