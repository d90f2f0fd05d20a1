package main

import (
	"testing"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// toldAndSeen are the requests that the servers tell of, and those that proxies before them see: of the
// whole life of the clients, and so without any at the edges of the measured time.
func toldAndSeen(t *testing.T, near bout) (_ sample, told, seen float64) {
	t.Helper()
	far := near
	far.setup.Redis = nil
	var proxies []*faultproxy.Proxy
	for _, url := range near.Redis {
		addr, err := host(url)
		if err != nil {
			t.Fatal(err)
		}
		p := faultproxy.New(t, addr)
		proxies = append(proxies, p)
		far.setup.Redis = append(far.setup.Redis, readdress(url, p.Addr()))
	}
	spent, around := near.metered(t.Context())
	if err := around(true); err != nil {
		t.Fatal(err)
	}
	s, err := far.run(t.Context(), far)
	if err != nil {
		t.Fatal(err)
	}
	if err := around(false); err != nil {
		t.Fatal(err)
	}
	for _, p := range proxies {
		seen += float64(p.Count() - p.Count("HELLO", "CLIENT", "CLUSTER", "INFO")) // what opens connections, and the bench itself
	}
	return s, spent.requests, seen
}

// If a request counted as a script's command, its time would be left out. If a script's command counted as a request, its time would
// be counted twice.
func TestTheServerTimeIsOfAllRequestsAndNothingElse(t *testing.T) {
	t.Parallel()
	at, err := open(t.Context(), "redis://"+testredis.Start(t).Addr, false)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		at.majority = append(at.majority, "redis://"+testredis.Start(t).Addr)
	}
	for _, name := range []string{"solo", "starve", "handoff", "quorum-solo", "read-mostly", "semaphore-8", "latch"} {
		for _, c := range contenders(*at) {
			s := theScenario(t, name)
			if c.foreign || c.absence(s) != "" {
				continue
			}
			t.Run(name+"/"+c.name, func(t *testing.T) {
				got, told, seen := toldAndSeen(t, at.bout(s, c, briefly))
				if told != seen || seen == 0 {
					t.Errorf("the servers tell of %v requests, the proxies of %v", told, seen)
				}
				if stuck := got.figures["stuck"] > 0 && !c.ours(); got.figures["server_us_per_cycle"] <= 0 && !stuck {
					t.Errorf("no server time: %v", got.figures)
				}
			})
		}
	}
}
