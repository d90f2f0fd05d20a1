package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// mostWords is how many words pages may have: a reader wants one answer. All of docs are counted together,
// but for the measurements, which bench writes.
var mostWords = map[string]int{"README.md": 1000, "CONTRIBUTING.md": 500, "docs/*.md": 15000}

func TestPagesAreShort(t *testing.T) {
	for pattern, most := range mostWords {
		pages, err := filepath.Glob("../" + pattern)
		testlock.Must(t, err)
		total, each := 0, ""
		for _, page := range pages {
			text, err := os.ReadFile(page)
			testlock.Must(t, err)
			if name := filepath.Base(page); name != "measurements.md" {
				words := len(strings.Fields(string(text)))
				total, each = total+words, each+fmt.Sprintf("\n\t%s %d", name, words)
			}
		}
		if total > most || total == 0 {
			t.Errorf("%s: %d words, of %d at most:%s", pattern, total, most, each)
		}
	}
}
