// Picture records lockline demo, and writes the recording to docs/demo.svg:
//
//	go run ./tools/picture
//
// A test runs the demo again, and fails if the demo does not show the same as the picture. Times, counts,
// ports and process ids differ from run to run, and are not compared.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

const (
	// command is the command with which README.md starts the demo.
	command = "go run ./cmd/lockline demo"
	file    = "docs/demo.svg"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, ".", os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, repo string, out io.Writer) error {
	r, err := record(ctx, repo)
	if err != nil {
		return err
	}
	svg := r.svg()
	if err := os.WriteFile(filepath.Join(repo, file), svg, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d lines, %.1f s, %d bytes\n", file, len(r), r[len(r)-1].at.Seconds(), len(svg))
	return nil
}

// record builds the command line of a repository, and runs the demo with these flags.
func record(ctx context.Context, repo string, flags ...string) (recording, error) {
	dir, err := os.MkdirTemp("", "lockline-picture-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "lockline.exe") // a name that every system can run
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = filepath.Join(repo, "cmd", "lockline")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the command line: %w\n%s", err, said)
	}

	demo := exec.CommandContext(ctx, program, append([]string{"demo"}, flags...)...)
	demo.Env = append(os.Environ(), "CLICOLOR_FORCE=1", "NO_COLOR=")
	demo.Stderr = os.Stderr
	stdout, err := demo.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := demo.Start(); err != nil {
		return nil, err
	}
	r, err := read(stdout)
	if err != nil {
		_ = demo.Process.Kill()
		_ = demo.Wait()
		return nil, err
	}
	if err := demo.Wait(); err != nil {
		return nil, fmt.Errorf("the demo: %w\n%s", err, r)
	}
	return r, nil
}

// read records the lines of the demo with their times, until the demo ends. The first line of the recording
// is the command.
func read(stdout io.Reader) (recording, error) {
	r := recording{{line: line{{text: "$ " + command}}}}
	var begun time.Time
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if begun.IsZero() {
			begun = time.Now()
		}
		l, err := parse(lines.Text())
		if err != nil {
			return nil, err
		}
		r = append(r, moment{startup + time.Since(begun), l})
	}
	return r, lines.Err()
}
