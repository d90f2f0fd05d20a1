//go:build unix && !linux

package main

import "os"

// adoptOrphans: this program knows how only on Linux. The command's process group is all that it ends
// elsewhere.
func adoptOrphans() {}

func descendants(_, _ int) []int { return nil }

func ownProgram() (string, error) { return os.Executable() }
