//go:build !unix

package main

import "time"

// cpuTime returns 0, because the CPU time is not known on this system.
func cpuTime() time.Duration { return 0 }
