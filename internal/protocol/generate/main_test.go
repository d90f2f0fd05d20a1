package main

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../.."

func generated(t *testing.T) map[string]string {
	t.Helper()
	scripts, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	return scripts
}

func TestTheScriptsAreThoseOfTheirSources(t *testing.T) {
	scripts := generated(t)
	var files []string
	for folder := range folders {
		found, err := filepath.Glob(filepath.Join(root, folder, "*.lua"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			files = append(files, path.Join(folder, filepath.Base(file)))
		}
	}
	if want := slices.Sorted(maps.Keys(scripts)); !slices.Equal(slices.Sorted(slices.Values(files)), want) {
		t.Errorf("the scripts are %q; the sources are those of %q", files, want)
	}
	for file, text := range scripts {
		if checkedIn, err := os.ReadFile(filepath.Join(root, file)); err != nil || string(checkedIn) != text {
			t.Errorf("%s is not what its source makes (%v): run go generate ./...", file, err)
		}
	}
}

var (
	noCode     = regexp.MustCompile(`--.*|'[^'\n]*'|"[^"\n]*"`)
	definition = regexp.MustCompile(`(?m)^local (?:function )?(\w+)`)
)

// defined returns the names that the libraries of a folder define.
func defined(t *testing.T, folder string) (names []string) {
	t.Helper()
	for _, file := range folders[folder] {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range definition.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return append(names, "one")
}

func TestAScriptHasTheDefinitionsThatItUsesAndNoOthers(t *testing.T) {
	for file, text := range generated(t) {
		text = noCode.ReplaceAllString(text, "")
		for _, name := range defined(t, path.Dir(file)) {
			here := regexp.MustCompile(`(?m)^local (?:function )?`+name+`\b`).FindAllStringIndex(text, -1)
			all := regexp.MustCompile(`\b`+name+`\b`).FindAllStringIndex(text, -1)
			switch {
			case len(here) == 0 && len(all) == 0:
			case len(here) != 1:
				t.Errorf("%s uses %s and defines it %d times", file, name, len(here))
			case all[0][1] != here[0][1]:
				t.Errorf("%s uses %s before it is defined", file, name)
			case len(all) == 1:
				t.Errorf("%s defines %s and does not use it", file, name)
			}
		}
	}
}

// Creating functions is a good part of what a short script costs.
func TestTheCommonCasePrecedesTheDefinitionsThatItDoesNotUse(t *testing.T) {
	scripts := generated(t)
	for file, want := range map[string][]string{
		"internal/queue/lock.lua":    {"take"},
		"internal/queue/release.lua": {"BLOCK", "conclude"},
	} {
		common, _, ok := strings.Cut(scripts[file], "return reply\n")
		if !ok {
			t.Errorf("%s has no common case", file)
		}
		var got []string
		for _, m := range definition.FindAllStringSubmatch(common, -1) {
			if slices.Contains(defined(t, path.Dir(file)), m[1]) {
				got = append(got, m[1])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q before its common case returns; want %q", file, got, want)
		}
	}
}

func TestTheScriptsReserveAsManyTokensAsTheEngine(t *testing.T) {
	n := 0
	for file, text := range generated(t) {
		for _, m := range regexp.MustCompile(`\bBLOCK = (.*)`).FindAllStringSubmatch(text, -1) {
			n++
			if m[1] != strconv.Itoa(protocol.Block) {
				t.Errorf("BLOCK is %s in %s, and Block %d", m[1], file, protocol.Block)
			}
		}
	}
	if n == 0 {
		t.Error("no script has BLOCK")
	}
}

// example makes a script of a library and a source.
func example(t *testing.T, library, source string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"library.lua": library, "x.lua": source} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, definitions, err := read(dir, "library.lua")
	if err != nil {
		t.Fatal(err)
	}
	return script(dir, "x.lua", definitions)
}

func TestDefinitionsStandBeforeTheFirstStatementThatNeedsThem(t *testing.T) {
	const (
		header = "-- A script.\n--\n-- Reply: a number\n"
		most   = "-- MOST is a constant.\nlocal MOST = 9\n"
		unused = "local function unused()\n  return MOST\nend\n"
		low    = "local function low(x, ...)\n  return math.min(x, MOST)\nend\n"
		high   = "-- high uses low.\nlocal function high(x)\n\n  return -low(x)\nend\n"
		early  = "local early = { 'low', \"high\" } -- not low\nif early.low then\n  return 'low'\nend\n"
		late   = "local a, b = {\n  high(1),\n}\n-- The end.\nif a then\n  return 'a' ..low(2)\nelse\n  high(3)\nend\n"
	)
	note := func(file string) string {
		return "--\n-- Generated from " + file + ": edit that, and run go generate ./...\n"
	}
	want := strings.Join([]string{header + note("x.lua"), early, most, low, high, late}, "\n")
	library := strings.Join([]string{"-- A library.\n", most, unused, low, high}, "\n")
	if got, err := example(t, library, strings.Join([]string{header, early, late}, "\n")); err != nil || got != want {
		t.Errorf("%v:\n%s\nwant:\n%s", err, got, want)
	}
}

func TestSourcesThatMeanSomethingElseThanTheyWouldInAScriptAreRefused(t *testing.T) {
	const library = "-- A library.\n\nlocal function low(x)\n  return math.min(x, 9)\nend\n"
	for name, texts := range map[string][2]string{
		"a local of a library's name":                   {library, "-- A script.\n\nlocal function f()\n  local a, low = 1, 2\nend\nreturn f()\n"},
		"a parameter of a library's name":               {library, "-- A script.\n\nreturn pcall(function(low) return 1 end)\n"},
		"a loop over a library's name":                  {library, "-- A script.\n\nfor i, low in ipairs(KEYS) do\n  return low\nend\n"},
		"a name defined twice":                          {library + "\nlocal low = 1\n", "-- A script.\n\nreturn low(1)\n"},
		"a function defined twice":                      {library + "\nlocal function low()\nend\n", "-- A script.\n\nreturn low(1)\n"},
		"a local that a library's function would see":   {library, "-- A script.\n\nlocal math = 1\nreturn low(math)\n"},
		"a library with a statement":                    {library + "\nredis.call('PING')\n", "-- A script.\n\nreturn low(1)\n"},
		"a library with two definitions in a statement": {library + "\nlocal a, b = 1, 2\n", "-- A script.\n\nreturn low(1)\n"},
		"a source without a header":                     {library, "return low(1)\n\nreturn 2\n"},
		"a source that is a header":                     {library, "-- A script.\n"},
	} {
		if text, err := example(t, texts[0], texts[1]); err == nil {
			t.Errorf("%s is not refused:\n%s", name, text)
		}
	}
}
