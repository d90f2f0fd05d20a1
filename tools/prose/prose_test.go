//go:build unix

// Package prose has the tests of tools/dev prose.
package prose

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broken has sentences for each rule. Each sentence breaks this rule and no other rule.
var broken = map[string][]string{
	"American": {"The wait was cancelled.", "Its behaviour is the same afterwards."},
	"Phrases": {"A copy is taken for a renewal.", "The session hears of the loss.",
		"It waits for ever.", "It ends for want of a lock.", "It gets half as much again.",
		"Observers are told of it."},
	"SentenceLength": {"A goroutine that waits" + strings.Repeat(" for a lock that waits", 5) +
		" asks again at once."},
	"Spelling": {"The lock stays unreleasable."},
	"Terms": {"The handover takes a request.", "A handoff takes one, too.", "The time-out ends the wait.",
		"The lock is re-entrant."},
}

// fine has text that is close to breaking rules, but breaks none.
var fine = "The holder's wait was canceled, for whichever goroutine asked: `who` and `TTL` are code. " +
	"An operator who looks sees a long-lived lease; the hand-over is over. A Mutex has time to live, " +
	"a timeout and `a; b; c; d`. " +
	"A sentence of exactly thirty-two words is fine" + strings.Repeat(", so long", 12) + ".\n"

var finding = regexp.MustCompile(`(?m)^(\S+?:\d+):\d+:Lockline\.(\w+):`)

// check runs tools/dev prose in a repository that has just the rules and these files.
func check(t *testing.T, files map[string]string) (findings []string, output string, err error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, ".vale"), os.DirFS("../../.vale")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".vale.ini", "tools/dev"} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "tools/dev"),
		"prose").CombinedOutput()
	for _, found := range finding.FindAllStringSubmatch(string(out), -1) {
		findings = append(findings, found[1]+" "+found[2])
	}
	slices.Sort(findings)
	return slices.Compact(findings), string(out), err
}

func TestEachRuleFindsWhatBreaksIt(t *testing.T) {
	rules, err := fs.Glob(os.DirFS("../../.vale/styles/Lockline"), "*.yml")
	if err != nil || len(rules) == 0 {
		t.Fatalf("no rules: %v", err)
	}
	files, want := map[string]string{}, []string{}
	for _, rule := range rules {
		rule = strings.TrimSuffix(rule, ".yml")
		if len(broken[rule]) == 0 {
			t.Errorf("no sentence breaks the rule %s", rule)
		}
		for i, sentence := range broken[rule] {
			name := rule + string(rune('a'+i))
			files[name+".md"] = "# Heading\n\n" + fine + "\n" + sentence + "\n"
			files["rlock/"+name+".go"] = "package rlock\n\n// " + sentence + "\nfunc f() {}\n"
			want = append(want, name+".md:5 "+rule, "rlock/"+name+".go:3 "+rule)
			if rule != "Spelling" && rule != "Terms" { // not checked in these folders
				for _, folder := range []string{"internal/call/", "bench/"} {
					files[folder+name+".go"] = "package call\n\n// " + sentence + "\nfunc f() {}\n"
					want = append(want, folder+name+".go:3 "+rule)
				}
			}
			files["cmd/lockline/"+name+".go"] = "package main\n\nvar text = \"" + sentence + "\"\n"
			want = append(want, "cmd/lockline/"+name+".go:3 "+rule)
		}
	}
	slices.Sort(want)
	got, output, err := check(t, files)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		t.Errorf("it does not fail: %v", err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s\noutput:\n%s",
			strings.Join(got, "\n"), strings.Join(want, "\n"), output)
	}
}

func TestWhatBreaksNoRuleIsLeftAlone(t *testing.T) {
	const bad = "Whoever waits is cancelled."
	got, output, err := check(t, map[string]string{
		"README.md":            fine + "\n```sh\n" + bad + "\n```\n",
		"docs/measurements.md": fine + "\n| " + bad + " |\n|-|\n\n- " + bad + "\n",
		"rlock/rlock.go": "//go:build unix\n\n// Package rlock is fine:\n//\n//\t" + bad +
			"\npackage rlock\n\n" +
			"var err = errors.New(\"exec: --wait: -1: it must not be negative -- as it is\")\n\n" +
			"type T struct {\n\ta int // three; of a kind\n\tb int // the same; but another\n}\n",
		"rlock/rlock_test.go": "package rlock\n\n// " + bad + "\nfunc f() {}\n",
		"internal/call/x.go":  "package call\n\n// handOver leaves a lock unreleasable.\nfunc f() {}\n",
		"bench/x.go":          "package main\n\n// handOver leaves a lock unreleasable.\nfunc f() {}\n",
	})
	if err != nil || len(got) > 0 {
		t.Errorf("%v\n%s", err, output)
	}
}
