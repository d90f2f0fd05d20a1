//go:build !linux && !freebsd

package main

import (
	"errors"
	"syscall"
	"time"
)

const sharesMemory = false

func mapShared(string) (*shared, func(), error) {
	return nil, nil, errors.New("processes share no memory here")
}

func cpuTime() time.Duration { return 0 }

func nap(d time.Duration) { time.Sleep(d) }

// endWithParent: this system does not offer it.
func endWithParent() *syscall.SysProcAttr { return nil }
