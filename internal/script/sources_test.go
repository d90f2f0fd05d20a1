package script

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSourcesMeanWhatTheyWouldInAScript(t *testing.T) {
	for _, name := range Names() {
		library := ""
		for _, file := range libraries[name[:strings.IndexByte(name, '/')]] {
			_, definitions, _ := strings.Cut(read(file), "\n\n")
			library += "\n" + definitions
		}
		if err := check("-- All of them.\n"+library, read(name+".lua")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// check returns an error if a source would have another meaning in an assembled script.
func check(library, source string) error {
	if header, rest, _ := strings.Cut(source, "\n\n"); !strings.HasPrefix(header, "--") || rest == "" {
		return fmt.Errorf("it has no header, or nothing behind it")
	}
	_, definitions := split(library)
	_, statements := split(source)
	var names []string
	for i, s := range slices.Concat(definitions, statements) {
		declared := found(visible, s)
		for _, l := range slices.Concat(declared, found(local, s)) {
			if slices.Contains(names, l) {
				return fmt.Errorf("%s is the library's:\n%s", l, s)
			}
		}
		if i < len(definitions) {
			if len(declared) != 1 {
				return fmt.Errorf("it is no definition of one function or constant:\n%s", s)
			}
			names = append(names, declared...)
		}
	}
	_, statements = split(example(library, source)("lock/x"))
	var own []string
	for _, s := range statements {
		declared := found(visible, s)
		if len(declared) == 0 || !slices.Contains(names, declared[0]) {
			own = append(own, declared...)
			continue
		}
		for word := range words(s) {
			if slices.Contains(own, word) && !slices.Contains(found(local, s), word) {
				return fmt.Errorf("%s of the library means another %s", declared[0], word)
			}
		}
	}
	return nil
}

func TestSourcesThatMeanSomethingElseAreRefused(t *testing.T) {
	const library = "-- A library.\n\nlocal function low(x)\n  return math.min(x, 9)\nend\n"
	if err := check(library, "-- A script.\n\nreturn low(1)\n"); err != nil {
		t.Error(err)
	}
	for name, texts := range map[string][2]string{
		"a local of a library's name": {library,
			"-- A script.\n\nlocal function f()\n  local a, low = 1, 2\nend\nreturn f()\n"},
		"a parameter of a library's name": {library,
			"-- A script.\n\nreturn pcall(function(low) return 1 end)\n"},
		"a loop over a library's name": {library,
			"-- A script.\n\nfor i, low in ipairs(KEYS) do\n  return low\nend\n"},
		"a name defined twice": {library + "\nlocal low = 1\n",
			"-- A script.\n\nreturn low(1)\n"},
		"a function defined twice": {library + "\nlocal function low()\nend\n",
			"-- A script.\n\nreturn low(1)\n"},
		"a local that a library's function would see": {library,
			"-- A script.\n\nlocal math = 1\nreturn low(math)\n"},
		"a library with a statement": {library + "\nredis.call('PING')\n",
			"-- A script.\n\nreturn low(1)\n"},
		"a library with two definitions in a statement": {library + "\nlocal a, b = 1, 2\n",
			"-- A script.\n\nreturn low(1)\n"},
		"a source without a header": {library, "return low(1)\n\nreturn 2\n"},
		"a source that is a header": {library, "-- A script.\n"},
	} {
		if err := check(texts[0], texts[1]); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}
