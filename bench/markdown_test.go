package main

import (
	"slices"
	"strings"
	"testing"
)

// written is the page of a run of rlock, redislock-exp and etcd in solo, crowd-8 and crowd-50.
func written(t *testing.T) string {
	t.Helper()
	at := &site{version: "7.0.15", origin: "started for this run"}
	r := newReport(at, []string{"--rounds", "3", "--contenders", "rlock, redislock-exp"}, 3, briefly)
	r.Run.Day, r.Machine.CPU = "2026-01-02", "a|b"
	r.describe([]scenario{theScenario(t, "hot8"), crowdOf(8), crowdOf(50)}, []contender{lockline("rlock", nil), redislockExponential(), etcdMutex()})
	for i, x := range r.Results {
		for range 3 {
			x.rounds = append(x.rounds, figures{"cycles_per_s": float64(1000 / (i + 1)), "wait_p99_us": 20, "requests_per_cycle": 2, "stuck": 0,
				"violations": 0, "bytes_per_cycle": 7, "lost": float64(i % 2)})
		}
		x.finish()
	}
	var b strings.Builder
	if err := r.writeMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestThePageSaysWhatRan(t *testing.T) {
	page := written(t)
	for _, want := range []string{"# Measurements\n", "\n```sh\ngo run ./bench --rounds 3 --contenders 'rlock, redislock-exp'\n```\n", "| day | 2026-01-02 |\n", `a\|b`,
		"| server | Redis 7.0.15 (started for this run) |\n", "3 rounds, or more", "| redislock-exp | github.com/bsm/redislock v0", "would need a server of its own", "\n- *lost*: "} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if n := strings.Count(page, "it would need a server of its own"); n != 1 {
		t.Errorf("the reason why etcd is in no crowd stands %d times", n)
	}
	if !strings.Contains(page, "<!-- check: "+brief+" -->\n```sh\n") {
		t.Errorf("the check of the documentation would run all of it:\n%s", page)
	}
}

func TestThePageHasASectionOfEachScenarioAndATableOverTheSizesOfAFamily(t *testing.T) {
	page := written(t)
	var headings []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			headings = append(headings, strings.TrimSpace(line))
		}
	}
	if want := []string{"# Measurements", "## Contenders", "## Summary", "## hot8", "## crowd", "### crowd-8", "### crowd-50", "## Columns"}; !slices.Equal(headings, want) {
		t.Errorf("%q, not %q", headings, want)
	}
	for _, want := range []string{
		"\n| clients | cycles/s: 8 | 50 | wait p99: 8 | 50 | requests/cycle: 8 | 50 |\n|---|--:|--:|--:|--:|--:|--:|\n| rlock | 250 | 166 | 20 us | 20 us | 2.00 | 2.00 |\n| redislock-exp | 200 | ",
		"\n|  | column | the best other library | rlock |\n|---|--:|--:|--:|\n| [hot8](#hot8) | cycles/s | redislock-exp: 500 | 2.00 x |\n| [crowd-8](#crowd-8) | cycles/s | redislock-exp: 200 | 1.25 x |\n",
		"\n8 clients x 4 goroutines, 1 lock.\n\n|  | cycles/s | p99 | requests/cycle | lost |\n|---|--:|--:|--:|--:|\n| rlock | **1000** | **20 us** | **2.00** | 0 |\n",
		"\n- rlock to the best other library: cycles/s 2.00 x redislock-exp, p99 1.00 x redislock-exp, requests/cycle 1.00 x redislock-exp\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	for _, no := range []string{"bytes/cycle", "violations |", "stuck |", "- without "} {
		if strings.Contains(page, no) {
			t.Errorf("%q is in\n%s", no, page)
		}
	}
}

func TestTheCheckOfTheDocumentationCanRunTheCommandOfThePage(t *testing.T) {
	args := strings.Fields("--embedded --compare x.json --redis redis://x:1 --scenarios hot8 " + brief)
	for i := range args {
		args[i] = strings.Trim(args[i], "'")
	}
	var out strings.Builder
	if err := run(t.Context(), args, &out, &out); err != nil {
		t.Fatal(err)
	}
}

func TestRatiosHaveTwoDigits(t *testing.T) {
	for ratio, want := range map[float64]string{41.6: "42", 10: "10", 1.234: "1.23", .5: "0.50", .05: "0.050", .0123: "0.012", .00054: "0.00054", 0: "0.00"} {
		if got := times(ratio); got != want {
			t.Errorf("%v is %s, not %s", ratio, got, want)
		}
	}
}

func TestAnArgumentIsQuotedWhereAShellWouldSplitIt(t *testing.T) {
	for arg, want := range map[string]string{"--rounds": "--rounds", "hot8,solo": "hot8,solo", "docs/x.md": "docs/x.md", "a, b": "'a, b'", "": "''", "it's": `'it'\''s'`, "redis://h:1/0": "redis://h:1/0"} {
		if got := quoted(arg); got != want {
			t.Errorf("%q is %s, not %s", arg, got, want)
		}
	}
}
