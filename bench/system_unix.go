//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time that this process has used. It returns 0 if the time is not known.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
