//go:build linux || freebsd

package main

import "syscall"

// dieWithParent makes the kernel kill the command if this process dies first. Otherwise the command would
// continue although nothing renews its lease.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
