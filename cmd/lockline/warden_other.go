//go:build unix && !linux

package main

import "os"

// adoptOrphans does nothing. On this system, exec ends only the process group of the command.
func adoptOrphans() {}

func descendants(_, _ int) []int { return nil }

func ownProgram() (string, error) { return os.Executable() }
