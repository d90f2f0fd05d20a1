package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/tools/internal/release"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const version = "v0.9.1"

// repository returns a Git repository with the present files of this project, committed.
func repository(t *testing.T) (dir string) {
	dir = filepath.Join(t.TempDir(), "repository")
	if err := release.Snapshot(t.Context(), filepath.Join("..", ".."), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// announce turns the section "Unreleased" of the changelog into a section of the version.
func announce(t *testing.T, repo string) {
	file := filepath.Join(repo, "CHANGELOG.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	with := strings.Replace(string(text), "## Unreleased\n", "## "+version+" (today)\n", 1)
	if err := os.WriteFile(file, []byte(with), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAReleaseIsACommitBesideHeadThatReplacesNothing(t *testing.T) {
	repo := repository(t)
	announce(t, repo)
	git(t, repo, "commit", "--quiet", "--all", "--message", "announce")
	head := git(t, repo, "rev-parse", "HEAD")
	var out strings.Builder
	if err := run(t.Context(), repo, []string{version}, &out); err != nil {
		t.Fatal(err)
	}
	// The tag that starts the workflow is pushed alone. If more than three tags were pushed at once, GitHub
	// would start no workflow.
	if want := "\tgit push origin v0.9.1\n\tgit push origin otel/v0.9.1 contrib/gocron/v0.9.1 " +
		"contrib/certmagic/v0.9.1 contrib/lockvet/v0.9.1 cmd/lockline/v0.9.1\n"; !strings.HasSuffix(
		out.String(), want) {
		t.Errorf("it says %q, want %q at its end", &out, want)
	}
	if now := git(t, repo, "rev-parse", "HEAD") + git(t, repo, "status", "--porcelain") + git(t, repo,
		"worktree", "list"); !strings.HasPrefix(now, head) || strings.Count(now, "\n") != 2 {
		t.Errorf("HEAD, the changes and the work trees are %q, and were %q", now, head)
	}
	changed := ""
	for _, folder := range []string{"cmd/lockline/", "contrib/certmagic/", "contrib/gocron/",
		"contrib/lockvet/", "otel/"} {
		changed += folder + "go.mod\n" + folder + "go.sum\n"
	}
	for _, module := range []string{"", "otel/", "contrib/gocron/", "contrib/certmagic/", "contrib/lockvet/",
		"cmd/lockline/"} {
		tag := module + version
		if got := git(t, repo, "diff", "--name-only", "HEAD", tag); got != changed {
			t.Errorf("%s changes %q, want %q", tag, got, changed)
		}
		mod := git(t, repo, "show", tag+":"+module+"go.mod")
		if strings.Contains(mod, "replace") ||
			module != "" && !strings.Contains(mod, release.Library+" "+version) {
			t.Errorf("go.mod of %s:\n%s", tag, mod)
		}
	}
	if err := run(t.Context(), repo, []string{version}, &out); err == nil ||
		!strings.Contains(err.Error(), "exists") {
		t.Errorf("a second time: %v", err)
	}
}

func TestWhatIsNotReadyIsNotReleased(t *testing.T) {
	repo := repository(t)
	for _, args := range [][]string{nil, {version, version}} {
		if err := run(t.Context(), repo, args, nil); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, odd := range []string{"0.9.1", "v1", "v2.0.0", "v10.0.0"} {
		if err := release.Make(t.Context(), repo, odd); err == nil ||
			!strings.Contains(err.Error(), "not a version") {
			t.Errorf("%s: %v", odd, err)
		}
	}
	if err := run(t.Context(), repo, []string{version}, nil); err == nil ||
		!strings.Contains(err.Error(), "CHANGELOG") {
		t.Errorf("a version that the changelog does not know: %v", err)
	}
	announce(t, repo)
	if err := run(t.Context(), repo, []string{version}, nil); err == nil ||
		!strings.Contains(err.Error(), "not committed") {
		t.Errorf("changes that are not committed: %v", err)
	}
	if tags := git(t, repo, "tag"); tags != "" {
		t.Errorf("tagged: %q", tags)
	}
}
