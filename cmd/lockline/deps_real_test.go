package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The program that operators install must contain no package that only tests need.
func TestTheProgramLinksNothingThatIsForTests(t *testing.T) {
	t.Parallel()
	list, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, list)
	}
	packages := strings.Fields(string(list))
	if !slices.Contains(packages, "github.com/lockline/lockline/rlock") {
		t.Errorf("these are not its packages: %q", packages)
	}
	for _, p := range packages {
		if p == "testing" || strings.Contains(p, "porcupine") || strings.Contains(p, "/internal/testing/") {
			t.Errorf("it links %s", p)
		}
	}
}
