package main

import (
	"slices"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// The figures of a crowd are made of several sources: the clients' own counts, and what the servers tell.
func TestTheFiguresOfACrowdAgree(t *testing.T) {
	at, err := open(t.Context(), "redis://"+testredis.Start(t).Addr, false)
	if err != nil {
		t.Fatal(err)
	}
	const window, servers = 500 * time.Millisecond, 3
	for range servers {
		at.majority = append(at.majority, "redis://"+testredis.Start(t).Addr)
	}
	r := newReport(at, nil, 1, window)
	r.describe([]scenario{crowdOf(6), quorumCrowdOf(6)}, contenders(*at))
	for _, x := range r.Results {
		t.Run(x.scenario.name+"/"+x.contender.name, func(t *testing.T) {
			s, told, seen := toldAndSeen(t, at.bout(x.scenario, x.contender, window))
			f := s.figures
			if told != seen {
				t.Errorf("the servers tell of %v requests, the proxies of %v", told, seen)
			}
			if f["cycles_per_s"] > 200 {
				t.Errorf("%v cycles of 5 ms a second", f["cycles_per_s"])
			}
			least := 1.5 // of a lock and an unlock
			if x.contender.floor {
				least = .9 // a message is all that it takes
			}
			if f["requests_per_cycle"] < least {
				t.Errorf("%v requests for a cycle, want at least %v", f["requests_per_cycle"], least)
			}
			if f["server_us_per_cycle"]*f["cycles_per_s"] > servers*1e6 {
				t.Errorf("%v us of server time for a cycle, %v times a second", f["server_us_per_cycle"], f["cycles_per_s"])
			}
			if publishes := x.contender.ours() || x.contender.floor; (f["published_per_cycle"] > 0) != publishes {
				t.Errorf("%v messages for a cycle", f["published_per_cycle"])
			}
			if f["inside_share"] < f["cycles_per_s"]*.005*.8 {
				t.Errorf("inside for %v of the time, in %v cycles a second of 5 ms", f["inside_share"], f["cycles_per_s"])
			}
			// The least share and the largest bound how many clients the cycles can be of.
			if n := f["turn_share"] * 6; n*f["max_share"] < 6*.999 || f["min_share"] > 0 != (n == 6) {
				t.Errorf("%v of 6 had a turn, shares are from %v to %v", n, f["min_share"], f["max_share"])
			}
		})
	}
}

func TestWaitsThatTheRunEndsCount(t *testing.T) {
	c := contender{name: "unequal", foreign: true, dial: func(setup) (client, error) { return &unequal{}, nil }}
	s := crowdOf(1)
	s.goroutines = 2 // of one client: the first gets the lock each time, the other never
	b := (&site{}).bout(s, c, 100*time.Millisecond)
	got, err := b.run(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if f := got.figures; f["wait_max_us"] < micros(b.window) || f["turn_share"] != .5 || f["min_share"] != 0 || f["max_share"] != 2 || f["lost"] != 0 {
		t.Errorf("%v", f)
	}
}

func TestAFamilyIsDrawnWithItsLastScenario(t *testing.T) {
	some := []scenario{crowdOf(8), crowdOf(50), quorumCrowdOf(8)}
	r := newReport(&site{}, nil, 1, briefly)
	r.describe(some, []contender{redislockExponential(), redsyncDefault()})
	for _, x := range r.Results {
		x.figures["cycles_per_s"] = float64(x.scenario.clients)
	}
	var names []string
	for _, s := range r.Scenarios {
		all, err := r.drawings(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			names = append(names, d.Name)
		}
	}
	if want := []string{"crowd-8-throughput", "crowd-50-throughput", "crowd-clients", "quorum-crowd-8-throughput"}; !slices.Equal(names, want) {
		t.Errorf("%q, not %q", names, want)
	}
}
