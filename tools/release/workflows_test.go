package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// workflows returns the text of each workflow by the name of its file.
func workflows(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	texts := map[string]string{}
	for _, file := range files {
		texts[filepath.Base(file)] = read(t, file)
	}
	return texts
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	uses   = regexp.MustCompile(`(?m)uses: *(.*)$`)
	pinned = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
)

// A workflow must name each action by a digest. A tag could be moved to other code.
func TestWorkflowsPinActionsByDigest(t *testing.T) {
	digests := map[string]string{}
	for name, text := range workflows(t) {
		for _, m := range uses.FindAllStringSubmatch(text, -1) {
			action, digest, _ := strings.Cut(m[1], "@")
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s is not OWNER/NAME@DIGEST # VERSION", name, m[1])
			}
			if other := digests[action]; other != "" && other != digest {
				t.Errorf("%s: %s, and elsewhere %s", name, m[1], other)
			}
			digests[action] = digest
		}
	}
	if len(digests) == 0 {
		t.Error("no action is used")
	}
}

func TestOneFileNamesTheVersionOfGo(t *testing.T) {
	version := strings.TrimSpace(read(t, "../../.go-version"))
	minor, ok := strings.CutSuffix(version, ".x")
	if !ok || !regexp.MustCompile(`^1\.\d+$`).MatchString(minor) {
		t.Fatalf(".go-version: %q", version)
	}
	literal := regexp.MustCompile(`(?m)go-version: *(.*)$`)
	for name, text := range workflows(t) {
		for _, m := range literal.FindAllStringSubmatch(text, -1) {
			if m[1] != "${{ matrix.go }}" { // the matrix varies the version on purpose
				t.Errorf("%s: go-version: %s, want go-version-file: .go-version", name, m[1])
			}
		}
	}
	if work := read(t, "../../go.work"); !strings.Contains(work, "go "+minor+".") {
		t.Errorf("go.work needs another version than %s:\n%s", version, work)
	}
	if page := read(t, "../../docs/faq.md"); !strings.Contains(page, "The tests run with Go "+minor+".") {
		t.Errorf("docs/faq.md names another version of Go than %s", version)
	}
}

func TestTheForgeBuildsWithTheGoReleaserThatWasTried(t *testing.T) {
	tried := regexp.MustCompile(`goreleaser/v2@(v[\d.]+)`).FindStringSubmatch(read(t, "../dev"))
	if tried == nil || !strings.Contains(workflows(t)["release.yml"], "version: "+tried[1]+" ") {
		t.Errorf("tools/dev tries %q, and release.yml has another one", tried)
	}
}
