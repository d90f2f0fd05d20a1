// Flaky runs a go test command. Then it runs each failed test alone, twice:
//
//	go run ./tools/flaky go test -race ./...
//
// A test that passes both times is flaky. At the end, its name is printed after the word FLAKY. If the
// variable LOCKLINE_FLAKY names a file, the name is appended to this file, too. If a package failed without a
// failed test, or panicked, the whole package is run again. The exit code is 1 if a test fails again, or if a
// package does not build. Write flags with an equals sign before the value, because each argument without a
// dash counts as a package.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 3 || os.Args[1] != "go" || os.Args[2] != "test" {
		fmt.Fprintln(os.Stderr, "usage: flaky go test [-flag=value]... [package]...")
		os.Exit(2)
	}
	flaky, err := run(os.Args[3:], os.Stdout)
	for _, name := range flaky {
		fmt.Println("FLAKY", name)
	}
	if file := os.Getenv("LOCKLINE_FLAKY"); file != "" && len(flaky) > 0 {
		if err := note(file, flaky); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func note(file string, flaky []string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\n", strings.Join(flaky, "\n"))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// run runs go test with these arguments. It returns the names of the tests and packages that failed once and
// then passed twice.
func run(args []string, out io.Writer) (flaky []string, err error) {
	first, err := test(args, out)
	if err != nil {
		return nil, err
	}
	flags := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return !strings.HasPrefix(arg, "-")
	})
	var broken []string
	for _, f := range first {
		again := slices.Concat(flags, []string{"-count=2"})
		if f.test != "" {
			again = append(again, "-run=^"+f.test+"$")
		}
		fmt.Fprintf(out, "\n== again, twice: %s\n", f)
		second, err := test(append(again, f.pkg), out)
		switch {
		case err != nil:
			return flaky, err
		case len(second) > 0:
			broken = append(broken, f.String())
		default:
			flaky = append(flaky, f.String())
		}
	}
	if len(broken) > 0 {
		err = fmt.Errorf("failed: %s", strings.Join(broken, ", "))
	}
	return flaky, err
}

// failure is a top-level test that failed, or a package that failed otherwise.
type failure struct{ pkg, test string }

func (f failure) String() string { return strings.TrimSuffix(f.pkg+"."+f.test, ".") }

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// test runs go test once. It prints the line of each package, and the output of failed tests. It returns an
// error if a package could not be built, or go test could not be run.
func test(args []string, out io.Writer) (failed []failure, err error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = out
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	printed := map[failure]*strings.Builder{} // output of each test and its subtests
	names := map[string][]string{}            // names of failed tests by package
	crashed := map[string]bool{}              // packages that have crashed
	built := true
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text()) // a message of the go command
			continue
		}
		top, _, sub := strings.Cut(e.Test, "/")
		at := failure{e.Package, top}
		switch e.Action {
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "build-fail":
			built = false
		case "output":
			line := strings.TrimLeft(e.Output, "\t") // a runtime error may follow output of a test
			crashed[e.Package] = crashed[e.Package] || strings.HasPrefix(line, "panic: ") ||
				strings.HasPrefix(line, "fatal error: ")
			if top == "" {
				if e.Output != "PASS\n" {
					fmt.Fprint(out, e.Output)
				}
				continue
			}
			if printed[at] == nil {
				printed[at] = &strings.Builder{}
			}
			printed[at].WriteString(e.Output)
		case "pass", "skip":
			if !sub {
				delete(printed, at)
			}
		case "fail":
			if top == "" {
				failed = append(failed, failures(e.Package, names[e.Package], crashed[e.Package])...)
				for at, text := range printed { // output of tests that a crash has cut short
					if at.pkg == e.Package {
						fmt.Fprint(out, text)
						delete(printed, at)
					}
				}
			} else if !sub {
				names[e.Package] = append(names[e.Package], top)
				fmt.Fprint(out, printed[at])
				delete(printed, at)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	switch err := cmd.Wait(); {
	case !built:
		return nil, fmt.Errorf("it does not build")
	case err != nil && len(failed) == 0:
		return nil, err
	}
	return failed, nil
}

// failures returns the tests of a failed package that run again. If the package has crashed, further tests
// have not run, so the whole package runs again.
func failures(pkg string, tests []string, crashed bool) (all []failure) {
	if crashed || len(tests) == 0 {
		return []failure{{pkg: pkg}}
	}
	for _, name := range tests {
		all = append(all, failure{pkg, name})
	}
	return all
}
