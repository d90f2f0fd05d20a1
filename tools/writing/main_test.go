package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// repository returns the root of a new folder that has these files.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		write(t, root, name, text)
	}
	return root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runIn runs the command in a repository. It returns whether the command has succeeded, and its output.
func runIn(t *testing.T, root string, update bool, folders ...string) (ok bool, output string) {
	t.Helper()
	var out strings.Builder
	ok, err := run(root, &out, update, folders)
	if err != nil {
		t.Fatal(err)
	}
	return ok, out.String()
}

func readFile(t *testing.T, root, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const unclear = "it is what those that wait get"

func TestACommentBehindCodeIsCheckedInEachKindOfFile(t *testing.T) {
	const variable = "package rlock\n\nvar grant int // " + unclear + "\n"
	for name, text := range map[string]string{
		"rlock/mutex.go":               variable,
		"rlock/field.go":               "package rlock\n\ntype t struct {\n\tg int // " + unclear + "\n}\n",
		"rlock/inner.go":               "package rlock\n\nfunc f() {\n\tg() // " + unclear + "\n}\n",
		"rlock/mutex_test.go":          variable,
		"rlock/x_nightly_test.go":      "//go:build nightly\n\n" + variable,
		"internal/script/lua/line.lua": "local grant = '--' -- " + unclear + "\n",
		"x/testdata/run.lua":           "return 1 -- " + unclear + "\n",
		".ci/run":                      "#!/usr/bin/env bash\n\nexit # " + unclear + "\n",
		"tools/install.sh":             "exit # " + unclear + "\n",
	} {
		ok, output := runIn(t, repository(t, map[string]string{name: text}), false)
		if ok {
			t.Errorf("%s: it does not fail", name)
		}
		folder := path.Dir(name)
		for _, want := range []string{
			folder + ": pronoun: 1 findings, 0 allowed:",
			`: pronoun: "it" in "` + unclear + `": begin with the noun`,
			folder + ": what: 1 findings, 0 allowed:",
			`: what: "what" in "` + unclear + `": name the thing`,
			folder + ": those that: 1 findings, 0 allowed:",
			`: those that: "those that" in "` + unclear + `": use the noun`,
		} {
			if !strings.Contains(output, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, output)
			}
		}
	}
}

func TestANumberMayOnlyFall(t *testing.T) {
	const two = "package rlock\n\nvar a int // as told\n\nvar b int // under way\n"
	const one = "package rlock\n\nvar a int // as told\n"
	const debts = debtsHeader + "rlock 1 word\n"

	root := repository(t, map[string]string{"rlock/a.go": two, debtsFile: debts})
	ok, output := runIn(t, root, false)
	if ok || !strings.Contains(output, "rlock: word: 2 findings, 1 allowed:\n"+
		`  rlock/a.go:3: word: "told" in "as told": notify; report, return`+"\n"+
		`  rlock/a.go:5: word: "under way" in "under way": in flight`+"\n") {
		t.Errorf("more findings than allowed: ok is %v\n%s", ok, output)
	}
	if ok, output := runIn(t, root, true); ok || !strings.Contains(output, "2 findings, 1 allowed") {
		t.Errorf("an update with more findings: ok is %v\n%s", ok, output)
	}
	if got := readFile(t, root, debtsFile); got != debts {
		t.Errorf("an update raised a number:\n%s", got)
	}

	write(t, root, "rlock/a.go", one)
	if ok, output := runIn(t, root, false); !ok || output != "" {
		t.Errorf("as many findings as allowed: ok is %v\n%s", ok, output)
	}

	write(t, root, "rlock/a.go", "package rlock\n")
	ok, output = runIn(t, root, false)
	if ok || !strings.Contains(output, "fewer than the 1 allowed") ||
		!strings.Contains(output, "tools/dev words -update") {
		t.Errorf("fewer findings than allowed: ok is %v\n%s", ok, output)
	}
	if ok, output := runIn(t, root, true); !ok || output != "" {
		t.Errorf("an update with fewer findings: ok is %v\n%s", ok, output)
	}
	if got := readFile(t, root, debtsFile); got != debtsHeader {
		t.Errorf("the update did not lower the number:\n%s", got)
	}
}

func TestAnUpdateLowersWhatFellAndLeavesWhatRose(t *testing.T) {
	root := repository(t, map[string]string{
		"rlock/a.go":  "package rlock\n\nvar a int // as told\n\nvar b int // under way\n",
		"latch/a.go":  "package latch\n\nvar a int // as told\n",
		"pubsub/a.go": "package pubsub\n\nvar a int // none is left\n",
		debtsFile:     debtsHeader + "latch 5 word\ngone 3 what\nrlock 1 word\n",
	})
	ok, output := runIn(t, root, true)
	if ok || !strings.Contains(output, "rlock: word: 2 findings") ||
		!strings.Contains(output, "pubsub: pronoun: 1 findings") || strings.Contains(output, "latch") {
		t.Errorf("ok is %v\n%s", ok, output)
	}
	if got, want := readFile(t, root, debtsFile), debtsHeader+"latch 1 word\nrlock 1 word\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOneFolderAndRuleDoesNotPayForAnother(t *testing.T) {
	root := repository(t, map[string]string{
		"rlock/a.go":        "package rlock\n",
		"rlock/child/a.go":  "package child\n\nvar a int // as told\n",
		debtsFile:           debtsHeader + "rlock 1 what\nrlock 9 word\n",
		"rlock/child/a.lua": "-- What is needed.\n",
	})
	_, output := runIn(t, root, false)
	for _, want := range []string{
		"rlock/child: word: 1 findings, 0 allowed", "rlock/child: what: 1 findings, 0 allowed",
		"rlock: what: 0 findings, fewer than the 1", "rlock: word: 0 findings, fewer than the 9",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("%q is not in\n%s", want, output)
		}
	}
}

func TestABadLineOfTheNumbersIsAnError(t *testing.T) {
	for line, want := range map[string]string{
		"rlock 1":                    "not a folder, a number and a rule",
		"rlock some word":            "not a positive number",
		"rlock 0 word":               "not a positive number",
		"rlock -1 word":              "not a positive number",
		"rlock 1 sword":              "no such rule",
		"rlock 1 word\nrlock 2 word": "twice",
	} {
		root := repository(t, map[string]string{debtsFile: line + "\n"})
		_, err := run(root, &strings.Builder{}, true, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
		if got := readFile(t, root, debtsFile); got != line+"\n" {
			t.Errorf("%q was overwritten by %q", line, got)
		}
	}
}

func TestAFolderOrFileListsItsFindings(t *testing.T) {
	root := repository(t, map[string]string{
		"latch/a.go": "package latch\n\nvar a int // as told\n",
		"latch/b.go": "package latch\n\nvar b int // under way\n",
		"rlock/a.go": "package rlock\n\nvar a int // as told\n",
		debtsFile:    debtsHeader + "latch 2 word\n",
	})
	for _, c := range []struct {
		arg  string
		want []string
	}{
		{"./latch/", []string{"latch/a.go:3", "latch/b.go:3"}},
		{"latch/b.go", []string{"latch/b.go:3"}},
		{"semaphore", nil},
	} {
		ok, output := runIn(t, root, false, c.arg)
		var got []string
		for l := range strings.Lines(output) {
			got = append(got, strings.SplitN(l, ": ", 2)[0])
		}
		if !ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: ok is %v\n%s", c.arg, ok, output)
		}
	}
}
