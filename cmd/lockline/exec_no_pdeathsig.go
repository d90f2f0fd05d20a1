//go:build unix && !linux && !freebsd

package main

import "syscall"

// dieWithParent: this kernel does not offer it.
func dieWithParent(*syscall.SysProcAttr) {}
