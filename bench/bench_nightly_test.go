//go:build nightly

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestEveryContenderExcludesInEveryScenario(t *testing.T) {
	at := furnished(t)
	all := contenders(*at)
	for _, s := range scenarios {
		s = scaled(s)
		r := newReport(at, nil, 1, briefly)
		r.describe([]scenario{s}, all)
		var names []string
		t.Run(s.name, func(t *testing.T) {
			for _, x := range r.Results {
				names = append(names, x.contender.name)
				t.Run(x.contender.name, func(t *testing.T) {
					if s.counted { // others look at what the whole process uses
						t.Parallel()
					}
					b := at.bout(s, x.contender, briefly)
					for _, own := range []bool{false, true} {
						if err := b.into(t.Context(), x, own); err != nil {
							t.Fatal(err)
						}
					}
					x.finish()
					plausible(t, x)
				})
			}
		})
		if want := takesPart[s.name]; !slices.Equal(names, want) && (sharesMemory || !s.processes) {
			t.Errorf("in %s are %v, not %v", s.name, names, want)
		}
		if len(r.Absent) != len(all)-len(names) {
			t.Errorf("in %s %d of %d are missing, %d with a reason", s.name, len(all)-len(names), len(all), len(r.Absent))
		}
	}
}

func TestTheProgramStartsItsServerAndReports(t *testing.T) {
	testredis.Start(t) // skips without a binary
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("doc.md"), []byte("an earlier page"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	args := []string{"--rounds", "2", "--duration", "20ms", "--scenarios", "solo,hot8,quorum-solo", "--contenders", "raw, rlock,redislock,redsync",
		"--json", in("results.json"), "--html", in("page.html"), "--plots", in("plots"), "--only-plots", "hot8,solo-waits,crowd-clients", "--markdown", in("doc.md")}
	if err := run(t.Context(), args, &out, &errOut); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"solo:", "hot8:", "rlock", "without raw", "go-redis/v9 v9.", "violations", "Redis ", "*", "rlock to the best other library: cycles/s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the table:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "hot1:") || strings.Contains(out.String(), "fairlock") {
		t.Errorf("more than what was asked for:\n%s", &out)
	}
	if errOut.Len() > 0 {
		t.Errorf("a progress bar where there is no terminal: %s", &errOut)
	}

	var got struct {
		Machine struct{ Cores int }
		Results []map[string]any
	}
	b := read(t, in("results.json"))
	if err := json.Unmarshal([]byte(b), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 8 || got.Machine.Cores == 0 { // redsync alone in quorum-solo
		t.Errorf("%s", b)
	}
	for _, x := range got.Results {
		_, shares := x["min_share"]
		if rounds, _ := x["rounds"].([]any); len(rounds) < 2 || len(rounds) > 2*furthest || x["cycles_per_s"].(float64) <= 0 || shares != (x["scenario"] == "hot8") {
			t.Errorf("%+v", x)
		}
	}

	page := read(t, in("page.html"))
	if names := external(page); len(names) > 0 {
		t.Errorf("the page is not self-contained: %q", names)
	}
	if n := strings.Count(page, "<svg"); n != 7 { // throughput and waits of three, shares of hot8
		t.Errorf("%d plots in the page", n)
	}
	files, _ := filepath.Glob(in("plots/*.svg"))
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if want := []string{"hot8-shares.svg", "hot8-throughput.svg", "hot8-waits.svg", "solo-waits.svg"}; !slices.Equal(files, want) {
		t.Errorf("%q, not %q", files, want)
	}
	if doc := read(t, in("doc.md")); !strings.HasPrefix(doc, "# Measurements\n") || strings.Contains(doc, "earlier page") || !strings.Contains(doc, "| rlock | ") {
		t.Errorf("%s", doc)
	}
}

func TestAnEmbeddedServerIsMarkedInEveryOutput(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	var out, errOut bytes.Buffer
	args := []string{"--embedded", "--rounds", "1", "--duration", "20ms", "--scenarios", "solo,hot1,names,quorum-solo,market-1x1-fine",
		"--contenders", "raw,rlock,fairlock,rueidislock,redislock,redsync,watch", "--json", in("x.json"), "--html", in("x.html"), "--markdown", in("x.md")}
	if err := run(t.Context(), args, &out, &errOut); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"table": out.String(), "JSON": read(t, in("x.json")), "page": read(t, in("x.html")), "Markdown": read(t, in("x.md"))} {
		if !strings.Contains(text, "EMBEDDED") {
			t.Errorf("not in the %s:\n%s", name, text)
		}
	}
	if !strings.Contains(out.String(), "without rueidislock: the embedded server has no CLIENT TRACKING") {
		t.Errorf("%s", &out)
	}
}

func plausible(t *testing.T, x *result) {
	t.Helper()
	s, c, f := x.scenario, x.contender, x.figures
	if f["violations"] != 0 {
		t.Errorf("%v violations of mutual exclusion", f["violations"])
	}
	if f["stuck"] > 0 && !c.ours() {
		t.Logf("%v goroutines of %s were stuck", f["stuck"], c.name) // nothing more needs to be measured, then
		return
	}
	if got, want := slices.Sorted(maps.Keys(f)), wantedFigures(s, c); !slices.Equal(got, want) {
		t.Errorf("measured\n%v, not\n%v", got, want)
	}
	for name, v := range f {
		switch {
		case v != v || v < 0:
			t.Errorf("%s is %v", name, v)
		case v == 0 && (name == "cycles_per_s" || strings.HasSuffix(name, "_per_cycle") && name != "retries_per_cycle" && name != "published_per_cycle" && !strings.Contains(name, "cpu")): // the server tells its CPU time by the millisecond
			t.Errorf("no %s", name)
		}
	}
	if f["wait_p99_us"] < f["wait_p50_us"] || f["wait_max_us"] < f["wait_p99_us"] || f["min_share"] > 1 || f["max_share"] != 0 && f["max_share"] < 1 {
		t.Errorf("not in order: %v", f)
	}
	if s.delay > 0 && f["added_rtt_us"] < micros(s.delay) {
		t.Errorf("only %v us were added to a round trip", f["added_rtt_us"])
	}
	if s.delay > 0 && f["wait_p50_us"] < micros(s.delay) && slices.Contains(s.needs, noWaiting) { // of the delay, the proxy may add up to half by itself
		t.Errorf("nobody is in the way, and yet a lock takes only %v us", f["wait_p50_us"])
	}
	if c.ours() && (f["stuck"] != 0 || f["lost"] != 0) {
		t.Errorf("%v stuck, %v lost", f["stuck"], f["lost"])
	}
	if c.name == "fairlock" && f["fifo_inversions"] != 0 {
		t.Errorf("the fair lock passed over somebody in %v of %v grants", f["fifo_inversions"], f["fifo_grants"])
	}
}

func wantedFigures(s scenario, c contender) []string {
	kind, ok := measured[s.name]
	if !ok {
		family, _, _ := strings.Cut(s.name, "-")
		if strings.HasPrefix(s.name, "quorum-crowd-") {
			family = "crowd"
		}
		kind = measured[family]
	}
	all := kind[0]
	if !sharesMemory {
		all = strings.ReplaceAll(strings.ReplaceAll(all, "cpu_us_per_lock ", ""), "cpu_us_per_cycle ", "")
	}
	if strings.HasPrefix(s.name, "quorum-") && s.family == (family{}) && s.goroutines*s.clients > 1 {
		all += shared32
	}
	if !c.foreign {
		all += " " + kind[1]
	}
	if s.name == "names" && c.ours() { // the others leave nothing, and nothing has no time to live
		all += " left_for_us"
	}
	return slices.Sorted(slices.Values(strings.Fields(all)))
}
