package script

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	noCode  = regexp.MustCompile(`--.*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"`)
	visible = regexp.MustCompile(`(?m)^local (?:function )?((?:\w+, )*\w+)`)
	local   = regexp.MustCompile(`\b(?:(?:local )?function ?\w*\(|(?:local|for) )((?:\w+, )*\w+)`)
)

// found returns the names in all lists that the pattern matches in code.
func found(pattern *regexp.Regexp, code string) (names []string) {
	for _, m := range pattern.FindAllStringSubmatch(noCode.ReplaceAllString(code, ""), -1) {
		names = append(names, strings.Split(m[1], ", ")...)
	}
	return names
}

// defined returns the names that the libraries of a script define.
func defined(name string) (names []string) {
	for _, file := range libraries[path.Dir(name)] {
		names = append(names, found(visible, read(file))...)
	}
	return names
}

func TestAScriptHasTheDefinitionsThatItUsesAndNoOthers(t *testing.T) {
	for _, name := range Names() {
		text := noCode.ReplaceAllString(Text(name), "")
		for _, d := range defined(name) {
			here := regexp.MustCompile(`(?m)^local (?:function )?`+d+`\b`).FindAllStringIndex(text, -1)
			all := regexp.MustCompile(`\b`+d+`\b`).FindAllStringIndex(text, -1)
			switch {
			case len(here) == 0 && (len(all) == 0 || slices.Contains(found(local, text), d)):
			case len(here) != 1:
				t.Errorf("%s uses %s and defines it %d times", name, d, len(here))
			case all[0][1] != here[0][1]:
				t.Errorf("%s uses %s before it is defined", name, d)
			case len(all) == 1:
				t.Errorf("%s defines %s and does not use it", name, d)
			}
		}
	}
}

// Creating functions takes a large part of the time of a short script.
func TestTheCommonCasePrecedesTheDefinitionsThatItDoesNotUse(t *testing.T) {
	for name, c := range map[string]struct {
		common string
		want   []string
	}{
		"lock/acquire": {"if token and not quiet then\n", []string{"clock", "ALL", "MAX_NUMBER"}},
		"lock/release": {"return 'R'\n", []string{"clock"}},
	} {
		want := c.want
		common, _, ok := strings.Cut(Text(name), c.common)
		if !ok {
			t.Errorf("%s has no common case", name)
		}
		own := func(d string) bool { return !slices.Contains(defined(name), d) }
		if got := slices.DeleteFunc(found(visible, common), own); !slices.Equal(got, want) {
			t.Errorf("%s has %q before its common case returns; want %q", name, got, want)
		}
	}
}

func TestDefinitionsStandBeforeTheFirstStatementThatNeedsThem(t *testing.T) {
	const (
		header = "-- A script.\n--\n-- Reply: a number\n"
		most   = "-- MOST is a constant.\nlocal MOST = 9\n"
		unused = "local function unused()\n  return MOST\nend\n"
		low    = "local function low(x, ...)\n  return math.min(x, MOST)\nend\n"
		high   = "-- high uses low.\nlocal function high(x)\n\n  return -low(x)\nend\n"
		early  = "local early = { 'low\\'', \"high\" } -- not low\nif early.low then\n  return 'low'\nend\n"
		late   = "local a, b = {\n  high(1),\n}\n-- The end.\nif a then\n  return 'a' ..low(2)\nelse\n  " +
			"high(3)\nend\n"
	)
	want := strings.Join([]string{"-- lockline script lock/x\n--\n" + header, early, most, low, high, late},
		"\n")
	library := strings.Join([]string{"-- A library.\n", most, unused, low, high}, "\n")
	if got := example(library, strings.Join([]string{header, early, late}, "\n"))("lock/x"); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// example returns a function like Text that has one script, lock/x, made from this library and this source.
func example(library, source string) func(name string) string {
	return textOf(func(file string) string {
		return map[string]string{"base.lua": library, "lock/x.lua": source, "lock.lua": "-- No\n\n",
			"permits.lua": "-- No\n\n", "queue.lua": "-- No\n\n"}[file]
	})
}

func TestAScriptOfABrokenLibraryIsBroken(t *testing.T) {
	broken := With("base.lua", strings.Replace(read("base.lua"), "local BLOCK = 1000",
		"local BLOCK = 2", 1))
	for _, name := range Names() {
		want := strings.Replace(Text(name), "local BLOCK = 1000", "local BLOCK = 2", 1)
		if got := broken(name); got != want {
			t.Errorf("%s is\n%s\nwant:\n%s", name, got, want)
		}
	}
}

// BenchmarkText measures the time in which a program assembles all scripts.
func BenchmarkText(b *testing.B) {
	names := Names()
	for b.Loop() {
		text := textOf(read)
		for _, name := range names {
			text(name)
		}
	}
}
