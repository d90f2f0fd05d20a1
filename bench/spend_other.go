//go:build !linux

package main

import "time"

// spend waits for the time d.
func spend(d time.Duration) { time.Sleep(d) }
