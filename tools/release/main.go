// Release tags a version of the library, of otel, of contrib's modules and of the command line in this
// repository:
//
//	go run ./tools/release v0.1.0
//
// The tags name a new commit on top of HEAD, which is on no branch. In this commit, the other modules require
// this version of the library and replace nothing, because go install refuses modules with replacements.
// Nothing is pushed. At the end, this program prints two git commands, which push the tags. The workflow of
// the forge then builds the binaries.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockline/lockline/tools/internal/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, ".", os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, repo string, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: go run ./tools/release vX.Y.Z")
	}
	version := args[0]
	status, err := exec.CommandContext(ctx, "git", "-C", repo, "status", "--porcelain").Output()
	if err != nil {
		return err
	}
	if len(status) > 0 {
		return fmt.Errorf("there are changes that are not committed:\n%s", status)
	}
	changes, err := os.ReadFile(filepath.Join(repo, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(strings.Split(string(changes), "\n"), func(line string) bool {
		return line == "## "+version || strings.HasPrefix(line, "## "+version+" ")
	}) {
		return fmt.Errorf("CHANGELOG.md has no section %q", "## "+version)
	}
	if err := release.Make(ctx, repo, version); err != nil {
		return err
	}
	tags := release.Tags(repo, version)
	// The tag of the library is pushed alone, because it starts the workflow. GitHub starts no workflow if
	// more than three tags are pushed at once.
	fmt.Fprintf(out, "tagged; publish it with\n\n\tgit push origin %s\n\tgit push origin %s\n",
		tags[0], strings.Join(tags[1:], " "))
	return nil
}
