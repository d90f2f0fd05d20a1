//go:build mutants

package sim_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/proof/mutant"
)

var within = flag.Int("within", 150, "how many seeds a mutant may live for")

// What is broken is there to be broken. This takes no time, so it is part of the gate.
func TestMutantsApply(t *testing.T) {
	for _, m := range slices.Concat(mutant.All, mutant.Explored) {
		if _, _, err := m.Apply("../.."); err != nil {
			t.Error(err)
		}
	}
}

// Each mutant is caught, or it is said why it cannot be. The table tells after how many seeds, and
// how often the seed that caught it does so again.
func TestMutantsAreCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var table []string
	for _, m := range mutant.All {
		t.Run(m.Name, func(t *testing.T) {
			line := run(t, m, root)
			table = append(table, fmt.Sprintf("| %s | %s | %s |", m.Name, m.Kind, line))
			t.Log(line)
		})
	}
	t.Logf("\n| mutant | worlds | caught |\n|---|---|---|\n%s", strings.Join(table, "\n"))
}

var caught = regexp.MustCompile(`seed (\d+), the (\d+)th; it failed again in (\d+) of (\d+) runs of\n.*\n\s*(.*)`)

// outside is how the runtime ends a program that touched a bubble from outside.
var outside = regexp.MustCompile(`inside and outside synctest bubble|from outside bubble`)

func run(t *testing.T, m mutant.Mutant, root string) string {
	dir := t.TempDir()
	path, source, err := m.Apply(root)
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, "broken"+filepath.Ext(m.File))
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: broken}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{broken: source, overlay: string(replace)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "sim.test")
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(binary, "-test.run", "Simulated/^"+m.Kind+"$", "-test.timeout", "5m", "-seeds", fmt.Sprint(*within), "-from", fmt.Sprint(*from), "-first", "-again", fmt.Sprint(*again), "-events", "1").CombinedOutput()
	found := caught.FindStringSubmatch(string(out))
	switch {
	case outside.Match(out):
		return "by the garbage collector: a forgotten Hold is unlocked from outside of the bubble, which ends the program"
	case found != nil && m.Harmless != "":
		t.Errorf("it is not harmless: %s", out)
	case found != nil:
		// Seeds run in parallel, in no order: the number of the last is not how many it took.
		return fmt.Sprintf("by seed %s, the %sth, again in %s of %s runs: %.70s", found[1], found[2], found[3], found[4], found[5])
	case err != nil:
		t.Errorf("%v: %s", err, out)
	case m.Harmless == "":
		t.Errorf("lived for %d seeds", *within)
	}
	return fmt.Sprintf("not within %d seeds. %s", *within, m.Harmless)
}
