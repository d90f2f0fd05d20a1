//go:build unix

// Docs checks the documentation of the project in a clean checkout of its files:
//
//	go run ./tools/docs          # links, commands and programs
//	go run ./tools/docs -links   # links alone
//	go run ./tools/docs FILE...  # all links, commands and programs of these files
//	go run ./tools/docs -done 'go test ./...'  # all but this command, which was run already
//
// Links in Markdown must lead to a file, and their anchors to a heading. Of links to other sites, only the
// form is checked. Commands (```sh) are run, one block after another, by bash -e in the top folder of the
// checkout. Programs (```go) are run in the module of a reader. This module has only the packages that
// earlier commands "in a module of its own" have installed. Fragments of programs are compiled there. An
// embedded server answers at localhost:6379. If this port is taken, the server has another port, and the
// blocks are changed to use it.
//
// A comment before a block changes how it is checked:
//
//	<!-- check: --rounds 1 -->                   appends these flags to the command, to make it short
//	<!-- check: in a module of its own -->       runs the command in the module of the reader
//	<!-- check: inside func(x *rlock.Mutex) -->  compiles the fragment as the body of this function
//	<!-- check: test -->                         runs a package of tests
//	<!-- check: package -->                      compiles a package other than main
//	<!-- check: skip, why -->                    does not run the block, and prints the reason
//
// Programs and fragments are also vetted by contrib/lockvet, except for tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	linksAlone := flag.Bool("links", false, "check links alone, run nothing")
	var done []string
	flag.Func("done", "leave out this `command`, which was run already; may be given several times",
		func(command string) error {
			done = append(done, command)
			return nil
		})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", *linksAlone, done, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run checks the documentation of the repository in the folder dir. If only is not empty, it names the pages
// whose blocks are run. Otherwise, the blocks of all pages are run.
func run(ctx context.Context, dir string, linksAlone bool, done, only []string, out io.Writer) error {
	s, err := newStage(ctx, dir, out)
	if err != nil {
		return err
	}
	defer s.close()
	s.done = done
	pages, err := readPages(s.checkout)
	if err != nil {
		return err
	}
	links, errs := checkLinks(s.checkout, pages)
	fmt.Fprintf(out, "%d pages, %d links\n", len(pages), links)
	for _, p := range pages {
		errs = append(errs, p.errs...)
		if linksAlone || len(only) > 0 && !slices.Contains(only, p.name) {
			continue
		}
		for _, b := range p.blocks {
			if ctx.Err() != nil {
				break
			}
			if err := s.check(ctx, b); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", b.place, err))
			}
		}
	}
	if !linksAlone {
		fmt.Fprintf(out, "\n%d blocks of commands and %d of Go were run or compiled, %d skipped\n",
			s.commands, s.programs, s.skipped)
	}
	if !linksAlone && s.commands+s.programs == 0 {
		errs = append(errs, errors.New("there was nothing to run"))
	}
	return errors.Join(append(errs, ctx.Err())...)
}
