//go:build !unix

package testredis

import "syscall"

// Elsewhere no process can be stopped: Freeze and Thaw fail the test.
const (
	stopSignal     = syscall.Signal(-1)
	continueSignal = syscall.Signal(-1)
)

func endWithParent() *syscall.SysProcAttr { return nil }

func standsStill(int) bool { return true }
