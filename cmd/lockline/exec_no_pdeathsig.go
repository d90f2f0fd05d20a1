//go:build unix && !linux && !freebsd

package main

import "syscall"

// dieWithParent does nothing, because this kernel cannot kill a process when its parent dies.
func dieWithParent(*syscall.SysProcAttr) {}
