//go:build linux || freebsd

package main

import "syscall"

// dieWithParent makes the kernel kill the command if the warden, which is its parent, dies first. If exec has
// died, too, no other process would end the command before the lease ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
