// Package release makes releases of the modules that users import or install, and serves these releases as
// the public module proxy would.
package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// Library is the path of the library's module. The paths of the other modules begin with it.
const Library = "github.com/lockline/lockline"

// folders has the folders of the modules that are released. The first module is the library. Each of the
// others requires the library, and no other module of this list.
var folders = []string{".", "otel", "contrib/gocron", "contrib/certmagic", "contrib/lockvet",
	"cmd/lockline"}

// Snapshot makes a git repository in the folder to. The new repository has the files that the repository in
// the folder from would have if all changes were committed.
func Snapshot(ctx context.Context, from, to string) error {
	list, err := git(ctx, from, "ls-files", "-z", "--cached", "--others", "--exclude-standard",
		"--deduplicate")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) { // deleted in the working tree
			continue
		}
		if err != nil {
			return err
		}
		info, err := os.Stat(filepath.Join(from, name))
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, data, info.Mode().Perm()); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"config", "user.name", "Lockline"},
		{"config", "user.email", "lockline@example.com"},
		{"add", "--all"}, {"commit", "--quiet", "--message", "Snapshot"}} {
		if _, err := git(ctx, to, args...); err != nil {
			return err
		}
	}
	return nil
}

// Tags returns the tags of a version, one for each module that repo has, for example v1.2.3 and otel/v1.2.3.
func Tags(repo, version string) (tags []string) {
	for _, folder := range present(repo) {
		tags = append(tags, path.Join(folder, version))
	}
	return tags
}

func present(repo string) (found []string) {
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(repo, folder, "go.mod")); err == nil {
			found = append(found, folder)
		}
	}
	return found
}

// Make tags a version of all modules in a git repository, from the commit HEAD. The tags name a new commit,
// in which the other modules require this version of the library and replace nothing. HEAD and the work tree
// stay as they are. Make runs go mod tidy, which may download modules.
func Make(ctx context.Context, repo, version string) (err error) {
	if semver.Canonical(version) != version || semver.Major(version) > "v1" {
		return fmt.Errorf("not a version such as v0.1.0: %q", version) // v2 would need other paths
	}
	dir, err := os.MkdirTemp("", "lockline-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tree, proxy := filepath.Join(dir, "tree"), filepath.Join(dir, "proxy")
	if _, err := git(ctx, repo, "worktree", "add", "--quiet", "--detach", tree, "HEAD"); err != nil {
		return err
	}
	defer func() {
		_, undo := git(context.WithoutCancel(ctx), repo, "worktree", "remove", "--force", tree)
		err = errors.Join(err, undo)
	}()

	// The required modules go into the module cache of this machine, from which Env serves them. So later
	// commands need no list of versions.
	for _, folder := range present(tree) {
		download := exec.CommandContext(ctx, "go", "mod", "download")
		download.Dir, download.Env = filepath.Join(tree, folder), append(os.Environ(), "GOWORK=off")
		if out, err := download.CombinedOutput(); err != nil {
			return fmt.Errorf("go mod download in %s: %w\n%s", folder, err, out)
		}
	}
	// The go.sum of the other modules has the checksum of the library. This checksum is known before the
	// commit, because the commit changes no file of the library.
	if err := publish(ctx, repo, "HEAD", ".", version, proxy); err != nil {
		return err
	}
	env, err := Env(ctx, proxy, filepath.Join(dir, "go"))
	if err != nil {
		return err
	}
	for _, folder := range present(tree)[1:] {
		if err := requireLibrary(filepath.Join(tree, folder, "go.mod"), version); err != nil {
			return err
		}
		tidy := exec.CommandContext(ctx, "go", "mod", "tidy")
		tidy.Dir, tidy.Env = filepath.Join(tree, folder), env
		if out, err := tidy.CombinedOutput(); err != nil {
			return fmt.Errorf("go mod tidy in %s: %w\n%s", folder, err, out)
		}
	}
	if _, err := git(ctx, tree, "commit", "--quiet", "--allow-empty", "--all", "--message",
		"Release "+version); err != nil {
		return err
	}
	tags := Tags(tree, version)
	for i, tag := range tags {
		if _, err := git(ctx, tree, "tag", "--annotate", "--message", "Lockline "+version, tag); err != nil {
			if i > 0 {
				_, undo := git(context.WithoutCancel(ctx), tree,
					append([]string{"tag", "--delete"}, tags[:i]...)...)
				err = errors.Join(err, undo)
			}
			return err
		}
	}
	return nil
}

// requireLibrary changes a go.mod, so that it requires a version of the library instead of replacing the
// library.
func requireLibrary(file, version string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	mod, err := modfile.Parse(file, data, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(mod.DropReplace(Library, ""), mod.AddRequire(Library, version)); err != nil {
		return err
	}
	mod.Cleanup()
	if len(mod.Replace) > 0 {
		return fmt.Errorf("%s replaces %s, and go install refuses that", file, mod.Replace[0].Old.Path)
	}
	if data, err = mod.Format(); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// Proxy puts the tagged version of each module into a folder that serves as a module proxy.
func Proxy(ctx context.Context, repo, version, to string) error {
	for _, folder := range present(repo) {
		if err := publish(ctx, repo, path.Join(folder, version), folder, version, to); err != nil {
			return err
		}
	}
	return nil
}

// publish writes the files that a module proxy serves for a revision, see
// https://go.dev/ref/mod#goproxy-protocol.
func publish(ctx context.Context, repo, revision, folder, version, proxy string) error {
	m := module.Version{Path: path.Join(Library, folder), Version: version}
	dir := filepath.Join(proxy, m.Path, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mod, err := git(ctx, repo, "show", revision+":"+path.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		return err
	}
	if folder == "." {
		folder = ""
	}
	return errors.Join(
		zip.CreateFromVCS(archive, m, repo, revision, folder),
		archive.Close(),
		os.WriteFile(filepath.Join(dir, version+".mod"), mod, 0o644),
		os.WriteFile(filepath.Join(dir, version+".info"), info, 0o644),
		os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644),
	)
}

// Env returns the environment of a go command. The command gets the modules of Lockline only from the folder
// proxy, and other modules from the module cache of this machine or from its usual proxy. Its GOPATH is
// gopath. It uses the build cache of this machine, and no C compiler.
func Env(ctx context.Context, proxy, gopath string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	// With -trimpath, results do not depend on the folder, so the build cache has them for the next run.
	return append(os.Environ(), "GOPROXY=file://"+proxy+",file://"+
		filepath.Join(lines[0], "cache", "download")+","+lines[2],
		"GONOSUMDB="+Library, "GOFLAGS=-modcacherw -trimpath", "GOCACHE="+lines[1], "GOPATH="+gopath,
		"GOMODCACHE=", "GOBIN=", "GOWORK=off",
		"CGO_ENABLED=0"), nil
}

func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("git %s: %w\n%s", args[0], err, exit.Stderr)
	}
	return out, err
}
