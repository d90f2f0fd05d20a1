//go:build unix

package main

import (
	"io"

	"golang.org/x/sys/unix"
)

// readerGone reports whether w is a pipe, a socket or a terminal that nobody can read any more. A write would
// fail then, but a command that rarely writes would notice that too late.
func readerGone(w io.Writer) bool {
	file := fileOf(w)
	if file == nil {
		return false
	}
	// Poll always reports POLLERR and POLLHUP, so Events can stay empty.
	fds := []unix.PollFd{{Fd: int32(file.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
