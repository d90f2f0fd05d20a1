package main

import (
	"fmt"
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
