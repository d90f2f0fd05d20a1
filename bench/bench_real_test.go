package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// furnished is a site for all.
func furnished(t *testing.T) *site {
	t.Helper()
	at, err := open(t.Context(), "redis://"+testredis.Start(t).Addr, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := at.close(); err != nil {
			t.Error(err)
		}
	})
	if err := at.furnish(t.Context(), scenarios, contenders(*at)); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestEveryContenderExcludesInEveryScenario(t *testing.T) {
	t.Parallel()
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

func TestABrokenLockIsCaught(t *testing.T) {
	t.Parallel()
	at := &site{redis: "redis://" + testredis.Start(t).Addr}
	for _, test := range []struct {
		scenario string
		leak     int64 // every nth
	}{
		{"hot1", 1}, {"hot1", 50}, {"hot8", 50}, {"starve", 50}, {"nested", 1}, {"crowd-8", 5}, {"waiters", 1}, {"held", 1}, {"market-5x5-coarse", 1}, {"market-5x5-fine", 1},
	} {
		t.Run(fmt.Sprintf("%s, 1 in %d", test.scenario, test.leak), func(t *testing.T) {
			s := theScenario(t, test.scenario)
			if s.name == "nested" {
				s.goroutines = 2
			}
			s.lease /= 10
			x := &result{}
			if err := at.bout(s, leakyContender(test.leak), 5*briefly).into(t.Context(), x, false); err != nil {
				t.Fatal(err)
			}
			if x.rounds[0]["violations"] == 0 {
				t.Error("nothing was noticed")
			}
		})
	}
	t.Run("but not one that excludes", func(t *testing.T) {
		for _, name := range []string{"hot1", "market-5x5-coarse"} {
			x := &result{}
			if err := at.bout(theScenario(t, name), leakyContender(1<<62), briefly).into(t.Context(), x, false); err != nil {
				t.Fatal(err)
			}
			if n := x.rounds[0]["violations"]; n != 0 {
				t.Errorf("%s: %v violations", name, n)
			}
		}
	})
}

// The waits of those that are stuck are ended by a context, which must not end what comes after them, too.
func TestATraderThatIsStuckIsReported(t *testing.T) {
	t.Parallel()
	at, err := open(t.Context(), "redis://"+testredis.Start(t).Addr, false)
	if err != nil {
		t.Fatal(err)
	}
	u := &unequal{}
	c := contender{name: "unequal", dial: func(setup) (client, error) { return u, nil }}
	x := &result{}
	if err := at.bout(theScenario(t, "market-1x1-coarse"), c, briefly).into(t.Context(), x, false); err != nil {
		t.Fatal(err)
	}
	if f := x.rounds[0]; f["stuck"] != 1 {
		t.Errorf("%v stuck", f["stuck"])
	}
	if err := at.close(); err != nil {
		t.Error(err)
	}
}

func TestTheProgramStartsItsServerAndReports(t *testing.T) {
	t.Parallel()
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
