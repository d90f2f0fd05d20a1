package quorum

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

func TestAVoteIsWonByAMajorityAndLostWhereNoneIsPossible(t *testing.T) {
	const won, lost, open = "won", "lost", "open"
	for _, c := range []struct {
		servers int
		tally   tally
		want    string
	}{
		{1, tally{undecided: 1}, open},
		{1, tally{granted: 1}, won},
		{1, tally{refused: 1}, lost},
		{1, tally{}, lost}, // its request failed
		{2, tally{granted: 1, undecided: 1}, open},
		{2, tally{granted: 2}, won},
		{2, tally{granted: 1, refused: 1}, lost},
		{3, tally{granted: 1, refused: 1, undecided: 1}, open},
		{3, tally{granted: 2, undecided: 1}, won},
		{3, tally{refused: 2, undecided: 1}, lost},
		{3, tally{granted: 1, refused: 1}, lost},
		{4, tally{granted: 2, refused: 1, undecided: 1}, open},
		{4, tally{granted: 2, refused: 2}, lost}, // half is no majority
		{4, tally{granted: 3, undecided: 1}, won},
		{5, tally{refused: 3, undecided: 2}, lost},

		// No majority can grant, and none has said yet who holds the lock.
		{3, tally{refused: 1, undecided: 1}, open},
		{3, tally{undecided: 1}, open},
		// The session learns the servers' clocks from answers that were expired.
		{3, tally{expired: 2, undecided: 1}, open},
		{5, tally{refused: 3, expired: 1, undecided: 1}, open},
		{5, tally{refused: 3, expired: 2}, lost},
		{3, tally{expired: 3}, lost},
	} {
		need := c.servers/2 + 1
		got := open
		if c.tally.lost(need) {
			got = lost
		}
		if c.tally.won(need) {
			if got == lost {
				t.Errorf("%d servers, %+v: won and lost", c.servers, c.tally)
			}
			got = won
		}
		if got != c.want {
			t.Errorf("%d servers, %+v: %s, want %s", c.servers, c.tally, got, c.want)
		}
	}
}

func TestTheNthOfTimesDoesNotDependOnTheirOrder(t *testing.T) {
	now := time.Now()
	votes := []vote{{until: now.Add(2)}, {}, {until: now.Add(1)}}
	for n, want := range []time.Time{{}, now.Add(1), now.Add(2)} {
		if got := nth(votes, n, func(v *vote) time.Time { return v.until }); !got.Equal(want) {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
	if !votes[1].until.IsZero() {
		t.Error("the votes were sorted")
	}
}

func TestTheOutcomeOfARequestIsThatOfAMajority(t *testing.T) {
	broken := errors.New("connection cut")
	for _, c := range []struct {
		servers, asked int
		replies        string // K: yes, L: no, !: an error
		last           int    // the reply that decides; 0: none need be waited for
		want           string
	}{
		{1, 1, "K", 1, "K"},
		{1, 1, "L", 1, "L"},
		{1, 1, "!", 1, "0 of 1 servers answered"},
		{2, 2, "KK", 2, "K"},
		{2, 2, "KL", 2, "L"},
		{2, 2, "K!", 2, "1 of 2 servers answered"},
		{3, 3, "KKL", 2, "K"},
		{3, 3, "LKK", 3, "K"},
		{3, 3, "LLK", 2, "L"},
		{3, 3, "!KK", 3, "K"},
		{3, 3, "!LL", 2, "1 of 3 servers answered"}, // no majority can say that it holds
		{3, 3, "!K!", 3, "1 of 3 servers answered"},
		{4, 4, "KKLK", 4, "K"},
		{4, 4, "KKLL", 4, "L"}, // half is no majority
		{4, 4, "KK!!", 4, "2 of 4 servers answered"},

		// Those that are not asked count as a no.
		{3, 2, "KK", 2, "K"},
		{3, 2, "KL", 2, "L"},
		{3, 2, "K!", 2, "1 of 3 servers answered"},
		{3, 1, "", 0, "L"},
		{5, 2, "", 0, "L"},
	} {
		q := &Quorum{members: make([]*member, c.servers), need: c.servers/2 + 1}
		r := q.replies(c.asked)
		for i := range c.replies {
			if r.decided != (i >= c.last) {
				t.Errorf("%+v: after %d replies it is decided: %v", c, i, r.decided)
			}
			o := wire.Outcome{Reply: c.replies[i : i+1]}
			if o.Reply == "!" {
				o = wire.Outcome{Err: broken}
			}
			r.add(o)
		}
		o := r.outcome() // which a reply after the decision does not change
		got := o.Reply
		if o.Err != nil {
			got, _, _ = strings.Cut(o.Err.Error(), ",")
			if !errors.Is(o.Err, broken) {
				t.Errorf("%+v: %v", c, o.Err)
			}
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestAnUnansweredCopyIsKnownInTheOutcome(t *testing.T) {
	q := &Quorum{members: make([]*member, 3), need: 2}
	r := q.replies(3)
	cut := errors.New("connection cut")
	r.add(wire.Outcome{Reply: "L", Unanswered: cut})
	r.add(wire.Outcome{Reply: "L"})
	if o := r.outcome(); o.Reply != "L" || o.Err != nil || o.Unanswered != cut {
		t.Errorf("%+v", o)
	}
}
