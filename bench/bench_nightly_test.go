//go:build nightly

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestEveryContenderExcludesInEveryScenario(t *testing.T) {
	at, err := open(t.Context(), t, "redis://"+testredis.Start(t).Addr, scenarios)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range newReport(at, nil, 1, briefly, scenarios, contenders).results {
		s := scaled(x.scenario)
		t.Run(s.name+"/"+x.contender.name, func(t *testing.T) {
			f, err := bout{s, x.contender, at.setup(s), briefly}.measured(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if f["violations"] != 0 {
				t.Errorf("%v violations of mutual exclusion", f["violations"])
			}
			if x.contender.ours() && (f["stuck"] != 0 || f["lost"] != 0) {
				t.Errorf("%v stuck, %v lost", f["stuck"], f["lost"])
			}
			if f["wait_p99_us"] < f["wait_p50_us"] || f["wait_max_us"] < f["wait_p99_us"] ||
				f["least_share"] > 1 {
				t.Errorf("not in order: %v", f)
			}
		})
	}
}

func TestTheProgramStartsItsServersAndReports(t *testing.T) {
	testredis.Start(t) // skips the test if there is no binary of the server
	page := filepath.Join(t.TempDir(), "page.md")
	plot := filepath.Join(t.TempDir(), "plot.svg")
	if err := os.WriteFile(page, []byte("an earlier page"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := runOf(t, brief+" --markdown "+page+" --plot "+plot, &out); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{page: out.String(), plot: "<svg"} {
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v\n%s", file, err, b)
		}
	}
	for _, want := range []string{"## solo", "## crowd", "## quorum-solo", "redlock", "redsync/v4 v4."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "## hot1") || strings.Contains(out.String(), "fairlock") {
		t.Errorf("more than what was asked for:\n%s", &out)
	}
}
