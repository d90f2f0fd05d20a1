package quorum

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestLostRoundsAreKeptApartByMoreEachTimeUpToABound(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct {
		took   time.Duration
		losses int
		bound  time.Duration
	}{
		{0, 0, 200 * us},
		{300 * us, 0, 300 * us},
		{300 * us, 1, 600 * us},
		{300 * us, 8, 300 * us << 8},
		{300 * us, 1000, 300 * us << 8},
		{time.Second, 0, 100 * ms},
		{time.Second, 1000, 100 * ms},
	} {
		var longest time.Duration
		for range 1000 {
			d := spread(c.took, c.losses)
			if d < 0 || d >= c.bound {
				t.Fatalf("%+v: %v", c, d)
			}
			longest = max(longest, d)
		}
		if longest < c.bound/2 {
			t.Errorf("%+v: never longer than %v", c, longest)
		}
	}
}

func TestAMessageFreesTheMemberOfTheGrantThatItNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := time.Now().Add(time.Minute)
		for _, c := range []struct {
			message string
			gap     bool
			free    bool
		}{
			{"77 79", false, true},
			{"66 66", false, false}, // a round that was lost was given back
			{"", true, true},        // a message may have been missed
		} {
			b := &round{q: clocks(today), votes: []vote{{free: held}}}
			b.votes[0].Token = "77"
			b.heard(0, []string{c.message}, c.gap)
			if free := b.votes[0].free.IsZero(); free != c.free {
				t.Errorf("%q, gap %v: free %v", c.message, c.gap, free)
			}
		}
	})
}

func TestTheLastTokenUsedCountsOnlyWithTheNonceOfTheMembersVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const far = today + hour
		for _, c := range []struct {
			nonce   string // of the vote
			message string
			counts  bool
		}{
			{"secret", "77 %d secret", true},
			{"secret", "77 %d", false},
			{"secret", "77 %d ", false},
			{"secret", "77 %d other", false},
			{"secret", "77 %d secret more", false},
			{"secret", "77 secret %d", false},
			{"secret", "66 %d other", false},
			{"", "77 %d", false}, // no nonce is known
			{"", "77 %d ", false},
			{"", "77 %d -", false},
		} {
			b := &round{q: clocks(today), votes: []vote{{nonce: c.nonce}}}
			b.votes[0].Token = "77"
			b.heard(0, []string{fmt.Sprintf(c.message, far)}, false)
			want := today
			if c.counts {
				want = far + 1
			}
			if got := b.q.propose(); got != want {
				t.Errorf("%q where the nonce is %q: proposed %d, want %d", c.message, c.nonce, got, want)
			}
		}
	})
}

func TestAMajorityIsFreeWhenEnoughOfTheHoldersAreGone(t *testing.T) {
	now := time.Now()
	at := func(seconds ...int) (votes []vote) {
		for _, s := range seconds {
			votes = append(votes, vote{free: now.Add(time.Duration(s) * time.Second)})
		}
		return votes
	}
	for _, c := range []struct {
		votes []vote
		need  int
		want  int
	}{{at(5), 1, 5}, {at(5, 3), 2, 5}, {at(5, 3, 4), 2, 4}, {at(5, 3, 4, 6), 3, 5}} {
		b := &round{q: &Quorum{need: c.need}, votes: c.votes}
		if got := b.freeAt().Sub(now); got != time.Duration(c.want)*time.Second {
			t.Errorf("%d of %d: after %v", c.need, len(c.votes), got)
		}
	}
}
