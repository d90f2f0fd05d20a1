//go:build !linux

package main

import "time"

// spend lets that much time pass.
func spend(d time.Duration) { time.Sleep(d) }
