package main

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// The figures of a crowd are made of several sources: the clients' own counts, and what the servers tell.
func TestTheFiguresOfACrowdAgree(t *testing.T) {
	t.Parallel()
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
