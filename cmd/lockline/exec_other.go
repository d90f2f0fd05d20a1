//go:build !unix

package main

import (
	"errors"
	"os"
	"time"
)

// execSupported returns an error, because without process groups and SIGTERM, exec could not end a command
// whose lock is lost.
func execSupported() error {
	return errors.New("exec needs process groups and signals, which this operating system does not have")
}

var forwarded []os.Signal

func endsWait(os.Signal) bool { return true }

func startGroup(string, []string, []string, time.Time) (commandGroup, error) {
	return nil, execSupported()
}

func runWarden([]string) error { return execSupported() }
