//go:build !linux && !freebsd

package main

import "syscall"

// endWithParent: this system does not offer it.
func endWithParent() *syscall.SysProcAttr { return nil }
