//go:build nightly

package explore

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/proof/mutant"
)

var (
	explored = regexp.MustCompile(`(\S+): \d+ states.* (\d+) runs`)
	wrong    = regexp.MustCompile(`WRONG: (.*)`)
)

// missed has the mutants that no world of this package notices, by their names, with the reasons. Simulation
// notices them.
var missed = map[string]string{
	"a message counts, whatever its nonce":             "no world forges a message",
	"permits: a message counts, whatever its nonce":    "no world forges a message",
	"permits: a grant is counted from the reply":       "a reply must be slow, and all renewals lost",
	"permits: a hand-over is counted from the message": "a message must be slow, and all renewals lost",
	"a re-entry takes a lost lock afresh":              "a nested Lock must begin after the lease has ended",

	"permits: the end of a further holder's lease gives back twice": "one of three leases must end",
}

// The table shows which world notices each mutant of the engine, and after how many runs. A
// mutant that no world notices fails the test, unless missed has the reason.
func TestMutantsOfTheEngineAreCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var table []string
	for _, m := range mutant.All {
		engine := strings.HasPrefix(m.File, "internal/engine/") || strings.HasPrefix(m.File, "internal/call/")
		if kindOf(m) == "" || !engine {
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

// The scripts run in this process, so no program is compiled for a broken script.
func TestMutantsOfTheScriptsAreCaught(t *testing.T) {
	var table []string
	for _, m := range slices.Concat(mutant.All, mutant.Explored) {
		if kindOf(m) == "" || !strings.HasPrefix(m.File, "internal/script/lua/") {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			broken, err := m.Scripts(filepath.Join("..", ".."))
			if err != nil {
				t.Fatal(err)
			}
			line := tryScripts(t, m, broken)
			table = append(table, fmt.Sprintf("| %s | %s | %s |", m.Name, m.Kind, line))
			t.Log(line)
		})
	}
	t.Logf("\n| mutant | worlds | caught |\n|---|---|---|\n%s", strings.Join(table, "\n"))
}

// tryScripts explores worlds with a broken script, until a world notices the mutant. It returns a text that
// says which one did so, or why none did.
func tryScripts(t *testing.T, m mutant.Mutant, broken func(name string) string) string {
	for _, w := range Worlds() {
		if !strings.HasPrefix(w.Name, kindOf(m)) {
			continue
		}
		if *bound >= 0 {
			w.Detours = *bound
		}
		r := Explore(t, w, broken, *most, *atMost)
		if r.Failure != nil {
			return fmt.Sprintf("by %s after %d runs: %.90v", w.Name, r.Runs, r.Failure)
		}
	}
	reason := missed[m.Name]
	if reason == "" && m.Harmless == "" && m.Test[0] == "" {
		t.Errorf("no world notices the mutant")
	}
	return "no. " + reason
}

// try compiles the tests of this package with a mutant of the engine, and explores worlds. It returns a text
// that says which world has noticed the mutant, or why none has.
func try(t *testing.T, m mutant.Mutant, root string) string {
	dir := t.TempDir()
	overlay, err := m.Overlay(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "explore.test")
	compile := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, ".")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *atMost+time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "-test.run", "Worlds/^"+kindOf(m), "-test.failfast",
		"-test.v", "-test.timeout", "1h", "-world", "all", "-for", atMost.String(),
		"-states", fmt.Sprint(*most), "-detours", fmt.Sprint(*bound)).CombinedOutput()
	if ctx.Err() != nil { // a broken session may send requests without end, even in newRun
		return "by a run that does not end"
	}
	worlds, failure := explored.FindAllStringSubmatch(string(out), -1), wrong.FindStringSubmatch(string(out))
	if len(worlds) == 0 || err != nil && failure == nil {
		t.Fatalf("%v: %s", err, out)
	}
	reason := missed[m.Name]
	if failure == nil {
		if reason == "" && m.Harmless == "" && m.Test[0] == "" {
			t.Errorf("no world notices the mutant")
		}
		return "no. " + reason
	}
	last := worlds[len(worlds)-1]
	return fmt.Sprintf("by %s after %s runs: %.90s", last[1], last[2], failure[1])
}

// kindOf returns the text with which the names of a mutant's worlds begin. It returns "" if no world is for
// this mutant.
func kindOf(m mutant.Mutant) string {
	for _, kind := range []string{"rlock", "fairlock", "rwlock", "semaphore"} {
		if m.Kind == kind {
			return kind
		}
	}
	return ""
}
