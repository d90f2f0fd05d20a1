package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/tools/internal/release"
)

// GoReleaser takes long to compile, so the test runs only if it is there. "tools/dev nightly binaries"
// installs it.
func TestAReleaseHasABinaryWithAChecksumForEachSystem(t *testing.T) {
	if _, err := exec.LookPath("goreleaser"); err != nil {
		const missing = "SKIPPED: no goreleaser in PATH; tools/dev nightly binaries gets it"
		if os.Getenv("LOCKLINE_REQUIRE_GORELEASER") != "" {
			t.Fatal(missing)
		}
		fmt.Fprintln(os.Stderr, t.Name()+": "+missing) // go test shows no skips
		t.Skip(missing)
	}
	repo, proxy := repository(t), t.TempDir()
	if err := release.Make(t.Context(), repo, version); err != nil {
		t.Fatal(err)
	}
	if err := release.Proxy(t.Context(), repo, version, proxy); err != nil {
		t.Fatal(err)
	}
	env, err := release.Env(t.Context(), proxy, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	git(t, repo, "remote", "add", "origin", "https://example.com/lockline.git")
	git(t, repo, "checkout", "--quiet", version)
	build := exec.CommandContext(t.Context(), "goreleaser", "release", "--snapshot", "--clean")
	build.Dir, build.Env = repo, append(env, "GORELEASER_CURRENT_TAG="+version)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	dist := filepath.Join(repo, "dist")
	sums, err := os.ReadFile(filepath.Join(dist, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	systems := map[string]string{} // archive of each system
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		archive, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := sha256.Sum256(archive); hex.EncodeToString(got[:]) != sum {
			t.Errorf("the checksum of %s is %x, and %s in the list", name, got, sum)
		}
		for _, system := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64",
			"windows_amd64", "windows_arm64", "freebsd_amd64", "freebsd_arm64"} {
			if strings.Contains(name, system) {
				systems[system] = filepath.Join(dist, name)
			}
		}
	}
	if len(systems) != 8 {
		t.Errorf("archives for %v", systems)
	}
	here := systems[runtime.GOOS+"_"+runtime.GOARCH]
	if out, err := exec.Command("tar", "-xf", here, "-C", dist, "lockline").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", here, err, out)
	}
	names, err := exec.Command("tar", "-tf", here).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LICENSE", "CHANGELOG.md", "THIRD_PARTY_NOTICES.txt", "sbom.cdx.json"} {
		if !slices.Contains(strings.Fields(string(names)), name) {
			t.Errorf("the archive has no %s: %s", name, names)
		}
	}
	out, err := exec.Command(filepath.Join(dist, "lockline"), "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), strings.TrimPrefix(version, "v")) {
		t.Errorf("--version: %v, %s", err, out)
	}
}
