//go:build nightly

package drive

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockline/lockline/proof/mutant"
)

var found = regexp.MustCompile(`(?m)^ +drive_test.go:\d+: (\S+): (\d+) states.* (\d+) runs.*\n` +
	`(?:    --- FAIL.*\n)? +drive_test.go:\d+: (.*)`)

// Each part of the library in Go that sessions run is broken by each of its mutants. The table tells which
// world notices it, and after how many runs.
func TestMutantsOfTheEngineAreCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var table []string
	for _, m := range mutant.All {
		if !strings.HasPrefix(m.File, "internal/engine/") && !strings.HasPrefix(m.File, "internal/call/") &&
			!strings.HasPrefix(m.File, "internal/session/") && !strings.HasPrefix(m.File, "pubsub/") {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			line := try(t, m, root)
			table = append(table, fmt.Sprintf("| %s | %s | %s |", m.Name, m.Kind, line))
			t.Log(line)
		})
	}
	t.Logf("\n| mutant | worlds | caught |\n|---|---|---|\n%s", strings.Join(table, "\n"))
}

// try returns how a mutant was caught.
func try(t *testing.T, m mutant.Mutant, root string) string {
	dir := t.TempDir()
	path, source, err := m.Apply(root)
	if err != nil {
		t.Fatal(err)
	}
	broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: broken}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{broken: source, overlay: string(replace)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "drive.test")
	compile := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, ".")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(binary, "-test.run", "Worlds/^"+kindOf(m), "-test.failfast", "-test.v", "-world",
		"all", "-for", atMost.String(), "-states", fmt.Sprint(*most), "-detours", fmt.Sprint(*bound),
		"-test.timeout", "1h").CombinedOutput()
	if os.Getenv("MUTANT_OUT") != "" {
		fmt.Println(string(out))
	}
	if of := found.FindStringSubmatch(string(out)); of != nil {
		return fmt.Sprintf("by %s after %s runs: %.90s", of[1], of[3], of[4])
	}
	if err != nil {
		return fmt.Sprintf("otherwise: %v: %.300s", err, out)
	}
	return "not"
}

// kindOf is what the names of the worlds begin with that a mutant is tried in.
func kindOf(m mutant.Mutant) string {
	for _, kind := range []string{"rlock", "fairlock", "rwlock", "semaphore"} {
		if m.Kind == kind {
			return kind
		}
	}
	return "rlock"
}
