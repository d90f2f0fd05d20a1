package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// widest is the highest number of columns of a line of Go or Lua. A tab counts as 4 columns.
const widest = 110

// tooWide returns the number of the first line that has more columns, or 0 if there is none.
func tooWide(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.ReplaceAll(bytes.TrimRight(line, "\r\n"), []byte("\t"), []byte("    "))
		if utf8.RuneCount(line) > widest {
			return n
		}
	}
	return 0
}

func TestALineThatIsTooWideIsFound(t *testing.T) {
	fits := strings.Repeat("ü", widest-4)
	for text, want := range map[string]int{
		"": 0, "\t" + fits: 0, "\t" + fits + "\n": 0, "\t" + fits + "x": 1, "x\n\n\t//" + fits + "\n": 3,
	} {
		if got := tooWide([]byte(text)); got != want {
			t.Errorf("%.20q: %d, want %d", text, got, want)
		}
	}
}

// This test checks the files of all modules, also their tests.
func TestNoLineIsTooWide(t *testing.T) {
	seen := map[string]int{}
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && path != ".." {
				return filepath.SkipDir
			}
			return nil
		}
		file := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		kind := filepath.Ext(file)
		if kind != ".go" && kind != ".lua" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen[kind]++
		if line := tooWide(text); line > 0 {
			t.Errorf("%s:%d: more than %d columns", file, line, widest)
		}
		return nil
	})
	testlock.Must(t, err)
	if seen[".go"] < 450 || seen[".lua"] < 30 {
		t.Errorf("only these files were found: %v", seen)
	}
}
