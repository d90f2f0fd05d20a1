package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of each descendant whose own parent ends.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// ownProgram returns a path to this program. The path leads to it even after a newer program has replaced its
// file.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// descendants returns the processes below the process root that are not in the process group `group`.
func descendants(root, group int) (below []int) {
	type process struct{ parent, group int }
	all := map[int]process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil { // the process has ended
			continue
		}
		// The text is PID (NAME) STATE PARENT GROUP ..., and NAME may contain parentheses.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 3 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		parent, _ := strconv.Atoi(string(fields[1]))
		of, _ := strconv.Atoi(string(fields[2]))
		all[pid] = process{parent, of}
	}
	for pid, p := range all {
		for up := p.parent; up > 0 && p.group != group; up = all[up].parent {
			if up == root {
				below = append(below, pid)
				break
			}
		}
	}
	return below
}
