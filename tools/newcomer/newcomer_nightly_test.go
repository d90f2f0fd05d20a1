//go:build nightly

package newcomer

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/tools/internal/release"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const version = "v0.1.0"

// A machine is the computer of a new user, on which only Go is installed.
type machine struct {
	t        *testing.T
	dir, bin string
	env      []string
	redis    string // address of the server
}

func TestSomebodysFirstTenMinutes(t *testing.T) {
	proxy := released(t)
	dir := t.TempDir()
	gopath := filepath.Join(dir, "go")
	env, err := release.Env(t.Context(), proxy, gopath)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: filepath.Join(dir, "app"), bin: filepath.Join(gopath, "bin"),
		redis: testredis.Embedded(t).Addr(),
		env:   append(env, "HOME="+dir, "LOCKLINE_REDIS=")}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}

	m.run("go", "mod", "init", "example.com/app")
	m.run("go", "get", "github.com/lockline/lockline/rlock")
	if out := m.program("quickstart", quickStart(t)); out != "alone\n" {
		t.Errorf("the README's first program says %q", out)
	}
	if out, want := m.program("fair", read(t, "testdata/fair/main.go")), "too long a wait for "+
		"printer\ntimeout\nworker 0\nworker 1\nworker 2\n"; out != want {
		t.Errorf("the fair lock's program says %q, want %q", out, want)
	}

	m.run("go", "get", "github.com/lockline/lockline/otel", "go.opentelemetry.io/otel/exporters/prometheus",
		"github.com/prometheus/client_golang/prometheus/promhttp")
	scrape := m.program("scrape", read(t, "testdata/scrape/main.go"))
	for _, want := range []string{
		`lockline_lock_wait_duration_seconds_count{`, `lockline_lock_kind="reentrant"`,
	} {
		if !strings.Contains(scrape, want) {
			t.Errorf("no %s in the scrape:\n%s", want, scrape)
		}
	}

	m.run("go", "install", "github.com/lockline/lockline/cmd/lockline@latest")
	if out := m.run("lockline", "--version"); !strings.Contains(out, strings.TrimPrefix(version, "v")) ||
		!strings.Contains(out, runtime.Version()) {
		t.Errorf("lockline --version says %q", out)
	}
	cluster := testredis.StartCluster(t, 3, 0)
	redis := "redis://" + cluster.Nodes[0].Addr // the client finds the other nodes by this node
	for _, name := range []string{"a", "b", "c", "d"} {
		out := m.run("lockline", "exec", "--redis", redis, name, "--", "go", "env", "GOARCH")
		if strings.TrimSpace(out) != runtime.GOARCH {
			t.Errorf("exec of %s says %q", name, out)
		}
		out = m.run("lockline", "inspect", "--redis", redis, name)
		if !strings.Contains(out, name+"  reentrant, free") {
			t.Errorf("inspect of %s says %q", name, out)
		}
	}
}

// released makes a release of the present files of the project. It returns the folder of a module proxy that
// has the release.
func released(t *testing.T) (proxy string) {
	dir := t.TempDir()
	repo, proxy := filepath.Join(dir, "repository"), filepath.Join(dir, "proxy")
	if err := release.Snapshot(t.Context(), filepath.Join("..", ".."), repo); err != nil {
		t.Fatal(err)
	}
	if err := release.Make(t.Context(), repo, version); err != nil {
		t.Fatal(err)
	}
	if err := release.Proxy(t.Context(), repo, version, proxy); err != nil {
		t.Fatal(err)
	}
	return proxy
}

// run runs a command in the folder of the user's module, and returns its stdout. It fails the test if the
// command fails.
func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	if name == "lockline" {
		name = filepath.Join(m.bin, name)
	}
	cmd := exec.CommandContext(m.t.Context(), name, args...)
	cmd.Dir, cmd.Env = m.dir, m.env
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, out, said.String())
	}
	return string(out)
}

// program writes a program into the user's module, runs it, and returns its stdout.
func (m *machine) program(name, source string) string {
	m.t.Helper()
	dir := filepath.Join(m.dir, name)
	source = strings.ReplaceAll(source, "localhost:6379", m.redis)
	if err := os.Mkdir(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return m.run("go", "run", "./"+name)
}

// quickStart returns the first program of the README.
func quickStart(t *testing.T) string {
	_, rest, _ := strings.Cut(read(t, "../../README.md"), "```go\n")
	program, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("there is no program in the README")
	}
	return program
}

func read(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
