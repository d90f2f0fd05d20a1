package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A section of guarantees.md has one guarantee, whose promises begin with their names in bold type. The
// comment of a test ends with "Proves:" and the names of the promises that the test proves, separated by
// commas. The last line of a section names some of these tests. This command lists all of them:
//
//	go test ./docs -run GuaranteeIsProved -v
func TestEachGuaranteeIsProvedByATest(t *testing.T) {
	page, err := os.ReadFile("guarantees.md")
	testlock.Must(t, err)
	list, wrong := proofs(t, string(page), "..")
	t.Log("\n" + list)
	for _, w := range wrong {
		t.Error(w)
	}
}

var (
	promise  = regexp.MustCompile(`(?m)^\*\*([^*]+)\.\*\* `)
	named    = regexp.MustCompile("\\[`(\\w+)`\\]\\(([^)]+)\\)")
	proves   = regexp.MustCompile(`(?m)^\s*//.*\bProves: (.*)\n(.*)$`)
	provesIt = regexp.MustCompile(`^(?:func (Test\w+)\(t \*testing\.T\)|\t"(\w+)": +\{)`)
)

// proofs returns a list of the promises of a page, with the tests below dir that prove each of them. It also
// returns the mistakes that it finds. Links of the page are relative to a folder in dir.
func proofs(t *testing.T, page, dir string) (list string, wrong []string) {
	type test struct{ file, name string }
	tests := map[string][]test{} // by the name of the promise
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		ofContract := strings.Contains(filepath.ToSlash(name), "testing/contract/")
		if err != nil || !strings.HasSuffix(name, "_test.go") && !ofContract {
			return err
		}
		code, err := os.ReadFile(name)
		file := filepath.ToSlash(strings.TrimPrefix(name, dir+string(filepath.Separator)))
		for _, m := range proves.FindAllStringSubmatch(string(code), -1) {
			found := provesIt.FindStringSubmatch(m[2])
			if found == nil {
				wrong = append(wrong, file+": no test follows: Proves: "+m[1])
				continue
			}
			for id := range strings.SplitSeq(strings.ToLower(m[1]), ", ") {
				tests[id] = append(tests[id], test{file, found[1] + found[2]})
			}
		}
		return err
	})
	testlock.Must(t, err)
	known := map[string]bool{}
	for section := range strings.SplitSeq(page, "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		var proved []test // tests of the promises in this section
		for _, m := range promise.FindAllStringSubmatch(section, -1) {
			id := strings.ToLower(m[1])
			known[id] = true
			if len(tests[id]) == 0 {
				wrong = append(wrong, "no test proves "+id)
			}
			proved = append(proved, tests[id]...)
			list += id + "\n"
			for _, of := range tests[id] {
				list += "\t" + path.Dir(of.file) + ": " + of.name + "\n"
			}
		}
		_, last, _ := strings.Cut(section, "\nTests: ")
		links := named.FindAllStringSubmatch(last, -1)
		if len(links) == 0 && promise.MatchString(section) {
			wrong = append(wrong, "no test is named under: "+title)
		}
		for _, m := range links {
			if !slices.Contains(proved, test{strings.TrimPrefix(m[2], "../"), m[1]}) {
				wrong = append(wrong, m[1]+" of "+m[2]+" proves nothing of: "+title)
			}
		}
	}
	if len(known) == 0 {
		wrong = append(wrong, "no promise was found")
	}
	for id := range tests {
		if !known[id] {
			wrong = append(wrong, "there is no promise "+id)
		}
	}
	slices.Sort(wrong)
	return list, wrong
}

func TestAGuaranteeWithoutATestIsFound(t *testing.T) {
	dir := t.TempDir()
	code := "package x\n\n// X tests it. Proves: order, Speed\nfunc TestX(t *testing.T) {}\n" +
		"\n// Proves: order\nvar x int\n"
	testlock.Must(t, os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(code), 0o600))
	page := "# Page\n\n## Waiters are served\n\n**Order.** First come.\n\nTests: [`TestX`](../x_test.go)\n" +
		"\n## Tokens grow\n\n**Tokens.** Grow.\n\nTests: [`TestX`](../x_test.go)\n" +
		"\n## Nothing is left\n\n**Order.** Again.\n\n## See also\n"
	list, wrong := proofs(t, page, dir)
	if !strings.HasPrefix(list, "order\n\t.: TestX\ntokens\n") {
		t.Error(list)
	}
	want := []string{
		"TestX of ../x_test.go proves nothing of: Tokens grow",
		"no test is named under: Nothing is left",
		"no test proves tokens",
		"there is no promise speed",
		"x_test.go: no test follows: Proves: order",
	}
	if !slices.Equal(wrong, want) {
		t.Errorf("%q", wrong)
	}
	if _, wrong := proofs(t, "# Page\n", t.TempDir()); len(wrong) != 1 {
		t.Errorf("of an empty page: %q", wrong)
	}
}
