package docs

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A comment at a test says which guarantees of guarantees.md it proves, by their names in the table:
//
//	// Proves: exclusion, tokens
//
// This lists them: go test ./docs -run GuaranteeIsProved -v
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
	guarantee = regexp.MustCompile("(?m)^\\| ?\\*`?([\\w-][^*`]*?)`?\\.?\\*")
	proves    = regexp.MustCompile(`(?m)^\s*// Proves: (.*)\n(.*)$`)
	provesIt  = regexp.MustCompile(`^(?:func (Test\w+)\(t \*testing\.T\)|\t"(\w+)": +\{)`)
)

// proofs lists the guarantees of a page with the tests below dir, and says what is wrong.
func proofs(t *testing.T, page, dir string) (list string, wrong []string) {
	tests := map[string][]string{}
	names := guarantee.FindAllStringSubmatch(page, -1)
	if len(names) == 0 {
		wrong = append(wrong, "no guarantee was found")
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		ofContract := strings.Contains(filepath.ToSlash(path), "testing/contract/")
		if err != nil || !strings.HasSuffix(path, "_test.go") && !ofContract {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range proves.FindAllStringSubmatch(string(code), -1) {
			test := provesIt.FindStringSubmatch(m[2])
			if test == nil {
				wrong = append(wrong, path+": no test follows: Proves: "+m[1])
				continue
			}
			where := strings.TrimPrefix(filepath.Dir(path), "../")
			name := cmp.Or(test[1], "TestContract/"+test[2])
			for id := range strings.SplitSeq(strings.ToLower(m[1]), ", ") {
				tests[id] = append(tests[id], where+": "+name)
			}
		}
		return err
	})
	testlock.Must(t, err)
	for _, m := range names {
		id := strings.ToLower(m[1])
		if len(tests[id]) == 0 {
			wrong = append(wrong, "no test proves "+id)
		}
		list += id + "\n\t" + strings.Join(tests[id], "\n\t") + "\n"
		delete(tests, id)
	}
	for id := range tests {
		wrong = append(wrong, "there is no guarantee "+id)
	}
	slices.Sort(wrong)
	return list, wrong
}

func TestAGuaranteeWithoutATestIsFound(t *testing.T) {
	dir := t.TempDir()
	code := "package x\n\n// Proves: order, Speed\nfunc TestX(t *testing.T) {}\n" +
		"\n// Proves: order\nvar x int\n"
	testlock.Must(t, os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(code), 0o600))
	list, wrong := proofs(t, "| *Order.* First come | |\n| *`Tokens`.* Grow | |\n", dir)
	got := strings.Join(wrong, "; ")
	if !strings.HasPrefix(list, "order\n\t"+dir+": TestX\n") || len(wrong) != 3 {
		t.Errorf("%s; %s", list, got)
	}
	for _, what := range []string{"no test proves tokens", "no guarantee speed", "no test follows"} {
		if !strings.Contains(got, what) {
			t.Errorf("%q is not in %q", what, got)
		}
	}
}
