//go:build !unix

package testredis

import "syscall"

// Elsewhere no process can be stopped: Freeze and Thaw fail the test.
const (
	StopSignal     = syscall.Signal(-1)
	ContinueSignal = syscall.Signal(-1)
)

// EndWithParent does nothing: only Linux can.
func EndWithParent() *syscall.SysProcAttr { return nil }

func standsStill(int) bool { return true }
