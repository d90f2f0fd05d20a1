//go:build unix && !linux && !freebsd

package main

import "syscall"

// dieWithParent does nothing, because this kernel cannot do that.
func dieWithParent(*syscall.SysProcAttr) {}
