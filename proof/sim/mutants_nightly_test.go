//go:build nightly

package sim_test

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockline/lockline/proof/mutant"
)

var within = flag.Int("within", 150,
	"how many seeds a mutant may live for; one that is harmless is tried with a fifth of them")

// Each mutant must be caught, or its field Harmless must have the reason why no seed catches it. The table
// has the seed that caught the mutant, and the number of runs in which this seed did so again.
func TestMutantsAreCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	table := make([]string, len(mutant.All))
	t.Cleanup(func() { t.Logf("\n| mutant | worlds | caught |\n|---|---|---|\n%s", strings.Join(table, "")) })
	for i, m := range mutant.All {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel() // a mutant is compiled while another one runs
			line := run(t, m, root)
			table[i] = fmt.Sprintf("| %s | %s | %s |\n", m.Name, m.Kind, line)
			t.Log(line)
		})
	}
}

var caught = regexp.MustCompile(`seed (\d+), the (\d+)th; it failed again in (\d+) of (\d+) runs ` +
	`of\n.*\n\s*(.*)`)

// outside matches the output of a program that the runtime has ended because it touched a bubble from
// outside.
var outside = regexp.MustCompile(`inside and outside synctest bubble|from outside bubble`)

func run(t *testing.T, m mutant.Mutant, root string) string {
	dir := t.TempDir()
	overlay, err := m.Overlay(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.Test[0] != "" {
		return try(t, m, root, overlay)
	}
	binary := filepath.Join(dir, "sim.test")
	compile := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, ".")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seeds := *within
	if m.Harmless != "" {
		seeds /= 5
	}
	out, err := exec.Command(binary, "-test.run", "Simulated/^"+m.Kind+"$", "-test.timeout", "20m", "-seeds",
		fmt.Sprint(seeds),
		"-from", fmt.Sprint(*from), "-first", "-again", fmt.Sprint(*again), "-events", "1").CombinedOutput()
	found := caught.FindStringSubmatch(string(out))
	switch {
	case outside.Match(out):
		return "by the garbage collector: a forgotten Hold is unlocked from outside of the bubble, " +
			"which ends the program"
	case found != nil && m.Harmless != "":
		t.Errorf("it is not harmless: %s", out)
	case found != nil:
		// Seeds run in parallel and in any order, so the number of the last seed is not the number of seeds.
		return fmt.Sprintf("by seed %s, the %sth, again in %s of %s runs: %.70s",
			found[1], found[2], found[3], found[4], found[5])
	case err != nil:
		t.Errorf("%v: %s", err, out)
	case m.Harmless == "":
		t.Errorf("lived for %d seeds", seeds)
	}
	return fmt.Sprintf("not within %d seeds. %s", seeds, m.Harmless)
}

// try runs the test that should catch a mutant, first without the mutant and then with it. So it is certain
// that the test fails because of the mutant.
func try(t *testing.T, m mutant.Mutant, root, overlay string) string {
	tested := func(flags ...string) (string, error) {
		args := append([]string{"test", "-count=1", "-v", "-run", "^" + m.Test[1] + "$"}, flags...)
		cmd := exec.Command("go", append(args, m.Test[0])...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := tested(); err != nil || !strings.Contains(out, "--- PASS: "+m.Test[1]) {
		t.Fatalf("the library as it is: %v: %s", err, out)
	}
	out, err := tested("-overlay", overlay)
	if err == nil || !strings.Contains(out, "--- FAIL: "+m.Test[1]) {
		t.Errorf("%s does not catch it: %v: %s", m.Test[1], err, out)
	}
	return fmt.Sprintf("by %s of %s", m.Test[1], filepath.Base(m.Test[0]))
}
