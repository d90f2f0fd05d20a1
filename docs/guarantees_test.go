package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachTestThatTheGuaranteesNameExists(t *testing.T) {
	page, err := os.ReadFile("guarantees.md")
	testlock.Must(t, err)
	exists := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	contract := regexp.MustCompile(`(?m)^\t"(\w+)": +\{.*func\(t \*testing\.T`)
	err = filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		ofContract := strings.Contains(filepath.ToSlash(path), "testing/contract/")
		if err != nil || !strings.HasSuffix(path, "_test.go") && !ofContract {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range contract.FindAllSubmatch(code, -1) {
			exists["TestContract/"+string(m[1])] = true
		}
		for _, m := range declared.FindAllSubmatch(code, -1) {
			exists[string(m[1])] = true
		}
		return err
	})
	testlock.Must(t, err)
	guarantees := 0
	for line := range strings.Lines(string(page)) {
		named := regexp.MustCompile("`(Test\\w+(?:/\\w+)?)`").FindAllStringSubmatch(line, -1)
		for _, m := range named {
			if !exists[m[1]] {
				t.Errorf("there is no %s", m[1])
			}
		}
		if strings.HasPrefix(line, "| *") {
			if guarantees++; len(named) == 0 {
				t.Errorf("no test proves %.60s", line)
			}
		}
	}
	if guarantees == 0 {
		t.Error("no guarantee was found")
	}
}
