//go:build !unix

package main

import "io"

// readerGone returns false, because this system does not report whether the reader is gone.
func readerGone(io.Writer) bool { return false }
