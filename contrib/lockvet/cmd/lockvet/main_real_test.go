package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestGoVetReportsMistakes(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "lockvet.exe")
	if out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	vet := func(pkg string) (string, error) {
		out, err := exec.Command("go", "vet", "-vettool="+tool, pkg).CombinedOutput()
		return string(out), err
	}
	out, err := vet("../../testdata/mistakes")
	if err == nil || !strings.Contains(out, "the error of Do is dropped") {
		t.Errorf("mistakes: %v\n%s", err, out)
	}
	if out, err := vet("../../testdata/allowed"); err != nil {
		t.Errorf("allowed code: %v\n%s", err, out)
	}
}
