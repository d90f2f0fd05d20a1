//go:build !unix

package main

import "io"

// readerGone returns false, because this system does not report it.
func readerGone(io.Writer) bool { return false }
