package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A clockReading is the time of a server, and the time of this machine at the same moment.
type clockReading struct {
	server, local time.Time
	rtt           time.Duration // round trip; the reading may be wrong by half of it
}

func readClock(ctx context.Context, server *redis.Client, now func() time.Time) (clockReading, error) {
	sent := now()
	clock, err := server.Time(ctx).Result()
	rtt := now().Sub(sent)
	return clockReading{server: clock, local: sent.Add(rtt / 2), rtt: rtt}, err
}

const (
	// leastApart is the shortest time between two readings of a clock. With more time, round trips cause
	// smaller errors.
	leastApart = time.Second
	// maxPace is the largest allowed relative difference between the rates of two clocks.
	maxPace = 0.01
)

// checkPaces reads the clocks of all servers again, and compares their rates with the rate of this machine's
// clock.
func (o *operator) checkPaces(
	ctx context.Context, before []facts, now func() time.Time,
) (findings []finding) {
	first := map[string]clockReading{}
	latest := time.Time{}
	for _, f := range before {
		first[f.server] = f.clock
		if f.clock.local.After(latest) {
			latest = f.clock.local
		}
	}
	select {
	case <-time.After(leastApart - min(leastApart, max(0, now().Sub(latest)))):
	case <-ctx.Done():
		return nil
	}
	var mu sync.Mutex // guards findings
	_ = eachMaster(ctx, o.rdb, func(ctx context.Context, server *redis.Client) error {
		name := serverName(server)
		second, err := readClock(ctx, server, now)
		mu.Lock()
		defer mu.Unlock()
		if begun, ok := first[name]; ok && err == nil { // a server that fails has other findings
			says := judgePace(begun, second)
			findings = append(findings, finding{Server: name, Check: "pace", judgment: says})
		}
		return nil
	})
	return findings
}

// judgePace compares the rate of a server's clock with the rate of this machine's clock, by two readings.
func judgePace(first, second clockReading) judgment {
	apart := second.local.Sub(first.local)
	off := float64(second.server.Sub(first.server)-apart) / float64(apart)
	margin := float64(first.rtt+second.rtt) / 2 / float64(apart)
	found := fmt.Sprintf("the clock's rate differs from this machine's by %+.2f %%, give or take %.2f %%",
		off*100, margin*100)
	switch {
	case math.Abs(off)-margin > maxPace:
		return judgment{warning, found, "run NTP on all machines, and let it slew by 0.5 % at most: " +
			"leases end by the server's clock, and holders use their own, so beyond 1 % two can hold a lock"}
	case margin > maxPace:
		return judgment{unknown, found, "run the doctor nearer to the server, where round trips are shorter"}
	}
	return judgment{fine, found, ""}
}
