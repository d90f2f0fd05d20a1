// Command writing finds words and forms in comments and pages that make readers stumble, by the rules of
// docs/writing.md. It reads Markdown and all comments of Go, Lua and shell scripts: above declarations, in
// functions, and behind code.
//
//	tools/dev words              compares the findings of each folder with tools/writing/debts.txt
//	tools/dev words -update      lowers the numbers in this file that are too high, and raises none
//	tools/dev words FOLDER...    prints all findings in these folders, or files
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// debtsFile has the number of findings that each folder may still have, by rule. A folder that is not listed
// may have none.
const debtsFile = "tools/writing/debts.txt"

func main() {
	update := flag.Bool("update", false, "lower the numbers in "+debtsFile+" to the findings")
	flag.Parse()
	ok, err := run(".", os.Stdout, *update, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run checks, updates or lists the repository at root. ok is false if a folder has more or fewer findings of
// a rule than debtsFile says.
func run(root string, out io.Writer, update bool, folders []string) (ok bool, err error) {
	found, err := findAll(root)
	if err != nil {
		return false, err
	}
	if len(folders) > 0 {
		for _, f := range found {
			if slices.ContainsFunc(folders, func(folder string) bool {
				folder = path.Clean(filepath.ToSlash(folder))
				return folder == f.file || folder == path.Dir(f.file)
			}) {
				fmt.Fprintln(out, f)
			}
		}
		return true, nil
	}
	allowed, err := readDebts(root)
	if err != nil {
		return false, err
	}
	actual := map[debt][]finding{}
	for _, f := range found {
		d := debt{path.Dir(f.file), f.rule}
		actual[d] = append(actual[d], f)
	}
	ok = true
	all := maps.Clone(allowed)
	for d := range actual {
		all[d] += 0
	}
	for _, d := range slices.SortedFunc(maps.Keys(all), debt.compare) {
		switch n := len(actual[d]); {
		case n > allowed[d]:
			ok = false
			fmt.Fprintf(out, "%s: %s: %d findings, %d allowed:\n", d.folder, d.rule, n, allowed[d])
			for _, f := range actual[d] {
				fmt.Fprintf(out, "  %s\n", f)
			}
		case n < allowed[d] && update:
			allowed[d] = n
		case n < allowed[d]:
			ok = false
			fmt.Fprintf(out, "%s: %s: %d findings, fewer than the %d allowed. Lower the number: "+
				"tools/dev words -update\n", d.folder, d.rule, n, allowed[d])
		}
	}
	if update {
		err = writeDebts(root, allowed)
	}
	if !ok {
		fmt.Fprintln(out, "docs/writing.md explains the rules.")
	}
	return ok, err
}

// A debt is a folder and a rule that the folder breaks.
type debt struct{ folder, rule string }

func (d debt) compare(other debt) int {
	return cmp.Or(strings.Compare(d.folder, other.folder), strings.Compare(d.rule, other.rule))
}

// readDebts reads debtsFile. Each line has a folder, a number and a rule. If there is no such file, there are
// no debts.
func readDebts(root string) (map[debt]int, error) {
	src, err := os.ReadFile(filepath.Join(root, debtsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	debts := map[debt]int{}
	lines := bufio.NewScanner(bytes.NewReader(src))
	for number := 1; lines.Scan(); number++ {
		l := lines.Text()
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		fields := strings.SplitN(l, " ", 3)
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s:%d: not a folder, a number and a rule: %q", debtsFile, number, l)
		}
		d := debt{fields[0], fields[2]}
		n, err := strconv.Atoi(fields[1])
		switch {
		case err != nil || n <= 0:
			return nil, fmt.Errorf("%s:%d: not a positive number: %q", debtsFile, number, fields[1])
		case !slices.ContainsFunc(rules, func(r rule) bool { return r.name == d.rule }):
			return nil, fmt.Errorf("%s:%d: no such rule: %q", debtsFile, number, d.rule)
		case debts[d] != 0:
			return nil, fmt.Errorf("%s:%d: twice: %q", debtsFile, number, l)
		}
		debts[d] = n
	}
	return debts, lines.Err()
}

const debtsHeader = `# Findings that each folder still has, by rule (docs/writing.md). A number may only fall.
# A folder and rule that is not listed has none. tools/dev words -update lowers the numbers.

`

func writeDebts(root string, debts map[debt]int) error {
	var b bytes.Buffer
	b.WriteString(debtsHeader)
	for _, d := range slices.SortedFunc(maps.Keys(debts), debt.compare) {
		if debts[d] > 0 {
			fmt.Fprintln(&b, d.folder, debts[d], d.rule)
		}
	}
	return os.WriteFile(filepath.Join(root, debtsFile), b.Bytes(), 0o644)
}

// skipped has the files that a program generates. The benchmark writes the measurements.
var skipped = []string{"docs/measurements.md"}

// findAll returns the findings in all files below root, sorted by file and line. It leaves out hidden folders
// other than .ci.
func findAll(root string) (found []finding, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		hidden := strings.HasPrefix(d.Name(), ".") && file != "." && file != ".ci"
		switch {
		case d.IsDir() && (hidden || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !d.Type().IsRegular() || hidden || slices.Contains(skipped, file):
			return nil
		}
		texts, err := ofFile(root, file)
		for _, t := range texts {
			found = append(found, check(t)...)
		}
		return err
	})
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return found, err
}
