package main

import (
	"slices"
	"testing"
	"time"
)

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
