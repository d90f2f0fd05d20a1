//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"golang.org/x/tools/imports"

	"github.com/lockline/lockline/tools/internal/release"
)

const (
	published   = "v0.0.1" // the version that a reader gets
	redisInText = "localhost:6379"
	patience    = 20 * time.Minute // time limit of a block
)

// A stage is the environment in which blocks are checked.
type stage struct {
	dir      string // temporary folder with all files of the stage
	checkout string // clean checkout of the project
	out      io.Writer

	reader    string   // folder with the module of a reader who follows the instructions
	readerEnv []string // environment with a module proxy that has the checkout; nil before the module is made
	lockvet   string   // path of the command lockvet; empty if the checkout has no lockvet

	redis     *miniredis.Miniredis
	redisAddr string

	done []string // commands that were run already

	commands, programs, skipped int
}

func newStage(ctx context.Context, repository string, out io.Writer) (*stage, error) {
	dir, err := os.MkdirTemp("", "lockline-docs-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, checkout: filepath.Join(dir, "lockline"),
		reader: filepath.Join(dir, "reader"), out: out}
	if err := errors.Join(os.Mkdir(s.reader, 0o755),
		release.Snapshot(ctx, repository, s.checkout)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) close() {
	if s.redis != nil {
		s.redis.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// check runs a block of commands, and runs or compiles a block of Go. It leaves out blocks of other
// languages.
func (s *stage) check(ctx context.Context, b block) error {
	code, err := s.withRedis(b.text)
	if err != nil {
		return err
	}
	why, skip := strings.CutPrefix(b.directive, "skip,")
	function, fragment := strings.CutPrefix(b.directive, "inside ")
	switch {
	case skip && strings.TrimSpace(why) != "":
		fmt.Fprintf(s.out, "\n== %s: skipped:%s\n%s", b.place, why, code)
		s.skipped++
		return nil
	case b.language == "sh" && b.directive == "":
		return s.command(ctx, b, s.checkout, code)
	case b.language == "sh" && strings.HasPrefix(b.directive, "-"):
		return s.command(ctx, b, s.checkout, strings.TrimRight(code, "\n")+" "+b.directive+"\n")
	case b.language == "sh" && b.directive == "in a module of its own":
		if err := s.readerModule(ctx); err != nil {
			return err
		}
		return s.command(ctx, b, s.reader, code)
	case b.language == "go" && b.directive == "":
		return s.program(ctx, b, "run", []byte(code))
	case b.language == "go" && b.directive == "test":
		return s.program(ctx, b, "test", []byte(code))
	case b.language == "go" && b.directive == "package":
		return s.program(ctx, b, "build", []byte(code))
	case b.language == "go" && fragment:
		// Process removes this import if the fragment does not use it. Without the import, Process could
		// choose any package of that name on this machine.
		const client = `import redis "github.com/redis/go-redis/v9"`
		whole := fmt.Sprintf("package main\n\n"+client+
			"\n\nvar _ = %s {\n%s\npanic(\"the fragment's end\")\n}\n\nfunc main() {}\n", function, code)
		source, err := imports.Process("", []byte(whole), nil)
		if err != nil {
			return err
		}
		return s.program(ctx, b, "build", source)
	case b.directive != "":
		return fmt.Errorf("what does %q mean for a block of %q?", b.directive, b.language)
	}
	return nil
}

func (s *stage) command(ctx context.Context, b block, dir, script string) error {
	s.commands++
	fmt.Fprintf(s.out, "\n== %s\n%s", b.place, script)
	if slices.Contains(s.done, strings.TrimSpace(script)) {
		fmt.Fprintln(s.out, "-- done already")
		return nil
	}
	return s.execute(ctx, dir, "bash", "-euo", "pipefail", "-c", script)
}

// program runs a main package or the tests of a package, or builds a package, in the module of the reader.
// Then it vets the package.
func (s *stage) program(ctx context.Context, b block, how string, source []byte) error {
	s.programs++
	if err := s.readerModule(ctx); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\n== %s: go %s\n", b.place, how)
	name := fmt.Sprintf("program%d", s.programs)
	dir := filepath.Join(s.reader, name)
	file, args := "main.go", []string{how, "./" + name}
	switch how {
	case "build":
		args = []string{how, "-o", os.DevNull, "./" + name}
	case "test":
		file, args = "main_test.go", []string{how, "-v", "./" + name}
	}
	if err := errors.Join(os.Mkdir(dir, 0o755),
		os.WriteFile(filepath.Join(dir, file), source, 0o644)); err != nil {
		return err
	}
	if err := s.execute(ctx, s.reader, "go", args...); err != nil || s.lockvet == "" {
		return err
	}
	return s.execute(ctx, s.reader, "go", "vet", "-vettool="+s.lockvet, "./"+name)
}

// readerModule makes the module of the reader at its first call, with a module proxy that has the checkout as
// a release.
func (s *stage) readerModule(ctx context.Context) error {
	if s.readerEnv != nil {
		return nil
	}
	proxy := filepath.Join(s.dir, "proxy")
	if err := errors.Join(release.Make(ctx, s.checkout, published),
		release.Proxy(ctx, s.checkout, published, proxy)); err != nil {
		return err
	}
	var err error
	if s.readerEnv, err = release.Env(ctx, proxy, filepath.Join(s.dir, "go")); err != nil {
		return err
	}
	if err := s.execute(ctx, s.reader, "go", "mod", "init", "example.com/reader"); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.checkout, "contrib", "lockvet")); err != nil {
		return nil
	}
	s.lockvet = filepath.Join(s.dir, "go", "bin", "lockvet")
	return s.execute(ctx, s.reader, "go", "install",
		release.Library+"/contrib/lockvet/cmd/lockvet@"+published)
}

// execute runs a command. If the command takes longer than patience, execute kills its whole process group.
func (s *stage) execute(ctx context.Context, dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, s.out, s.out
	if dir == s.reader {
		cmd.Env = s.readerEnv
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	start := time.Now()
	err := cmd.Run()
	fmt.Fprintf(s.out, "-- %.1f s\n", time.Since(start).Seconds())
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// withRedis looks for the address localhost:6379 in a block. If it finds the address, it starts a server,
// unless one is running, and puts the server's address in its place.
func (s *stage) withRedis(code string) (string, error) {
	if !strings.Contains(code, redisInText) {
		return code, nil
	}
	if s.redis == nil {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		err := m.StartAddr("127.0.0.1:6379")
		if s.redisAddr = redisInText; err != nil { // another server has the port
			err = m.StartAddr("127.0.0.1:0")
			s.redisAddr = m.Addr()
			fmt.Fprintf(s.out, "\nport 6379 is taken: %s is read as %s\n", redisInText, s.redisAddr)
		}
		if err != nil {
			return "", err
		}
		s.redis = m
	}
	return strings.ReplaceAll(code, redisInText, s.redisAddr), nil
}
