package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// once is the source of a function that fails the test in its first run. The function makes a file, so that
// it succeeds in later runs.
const once = `
func once(t *testing.T, name string) {
	if _, err := os.Stat(name); err != nil {
		_ = os.WriteFile(name, nil, 0o600)
		t.Fatal("the first time")
	}
}
`

func TestWhatPassesTwiceAloneIsFlakyAndTheRestHasFailed(t *testing.T) {
	for name, c := range map[string]struct {
		tests string
		flaky []string
		err   string
	}{
		"dies once": {`func TestA(t *testing.T) { defer func() { if t.Failed() { ` +
			`new(sync.Mutex).Unlock() } }(); once(t, "a") }`, []string{"m"}, ""},
		"passes": {`func TestA(*testing.T) {}`, nil, ""},
		"fails once": {`func TestA(t *testing.T) { once(t, "a") }; func TestB(*testing.T) {}`,
			[]string{"m.TestA"}, ""},
		"a subtest": {`func TestA(t *testing.T) { t.Run("b", func(t *testing.T) { once(t, "b") }) }`,
			[]string{"m.TestA"}, ""},
		"fails always": {`func TestA(t *testing.T) { once(t, "a") }; func TestB(t *testing.T) { t.Fail() }`,
			[]string{"m.TestA"}, "failed: m.TestB"},
		"panics once": {`func TestA(t *testing.T) { defer func() { if t.Failed() { panic(1) } }(); ` +
			`once(t, "a") }`, []string{"m"}, ""},
		"fails beside": {`func TestMain(m *testing.M) { m.Run(); os.Exit(1) }`, nil, "failed: m"},
		"no build":     {`func TestA(t *testing.T) { t.Nothing() }`, nil, "it does not build"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod": "module m\n\ngo 1.26\n",
				"m_test.go": "package m\n\nimport (\n\t\"os\"\n\t\"sync\"\n\t\"testing\"\n)\n\nvar _ " +
					"sync.Mutex\n" + once + strings.ReplaceAll(c.tests, "; func", "\n\nfunc") + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			t.Setenv("GOWORK", "off")
			var out strings.Builder
			flaky, err := run([]string{"-vet=off", "./..."}, &out)
			if name == "dies once" && !strings.Contains(out.String(), "fatal error: sync: unlock") {
				t.Errorf("nobody is told how it died: %s", &out)
			}
			if got := fmt.Sprint(err); !slices.Equal(flaky, c.flaky) || c.err == "" && err != nil ||
				c.err != "" && got != c.err {
				t.Errorf("flaky %q, error %v", flaky, err)
			}
		})
	}
}
