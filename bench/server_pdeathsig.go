//go:build linux || freebsd

package main

import "syscall"

// endWithParent has the kernel end the server with this program, whatever ends it.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
