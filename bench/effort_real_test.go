package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// The benchmark reads the counters of the servers. It must count as many requests as the proxies in front of
// the servers, over the whole life of the clients. If it took a request for a command of a script, the time
// of the request would be left out. If it took a command of a script for a request, the time of the command
// would count twice.
func TestTheServerTimeIsOfAllRequestsAndNothingElse(t *testing.T) {
	t.Parallel()
	at, err := open(t.Context(), t, "redis://"+testredis.Start(t).Addr, []scenario{{servers: 3}})
	if err != nil {
		t.Fatal(err)
	}
	tested := []string{"solo", "crowd", "handoff", "quorum-crowd", "read-mostly", "semaphore",
		"held", "latch"}
	r := newReport(at, nil, 1, briefly, scenarios, contenders)
	seen := map[string]bool{}
	for _, x := range r.results {
		name := x.scenario.name + "/" + x.contender.name
		if seen[name] || !strings.Contains(fmt.Sprint(tested), x.scenario.name) || x.scenario.servers > 3 {
			continue
		}
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			s := scaled(x.scenario)
			near := bout{s, x.contender, at.setup(s), briefly}
			far := near
			far.redis = nil
			var proxies []*faultproxy.Proxy
			for _, url := range near.redis {
				p := faultproxy.New(t, strings.TrimPrefix(url, "redis://"))
				proxies = append(proxies, p)
				far.redis = append(far.redis, "redis://"+p.Addr())
			}
			spent, meter := near.metered(t.Context())
			if err := meter(); err != nil {
				t.Fatal(err)
			}
			f, err := far.measured(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := meter(); err != nil {
				t.Fatal(err)
			}
			requests := 0.
			// The commands that open a connection do not count as requests. The same holds for the INFO that
			// this program sends.
			for _, p := range proxies {
				requests += float64(p.Count() - p.Count("HELLO", "CLIENT", "CLUSTER", "INFO"))
			}
			if spent.requests != requests || requests == 0 {
				t.Errorf("the servers tell of %v requests, the proxies of %v", spent.requests, requests)
			}
			if f["server_us_per_cycle"] <= 0 && s.locks == 0 && f["stuck"] == 0 {
				t.Errorf("no server time: %v", f)
			}
		})
	}
}
