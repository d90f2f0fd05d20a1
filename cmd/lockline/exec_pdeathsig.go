//go:build linux || freebsd

package main

import "syscall"

// dieWithParent has the kernel kill the command when this process dies without
// having seen to it: it must not run on while its lease runs out.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
