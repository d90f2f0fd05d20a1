package quorum

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// clocks is a quorum of servers whose clocks are known, but those that show 0. In fake time they stand still.
func clocks(now ...int64) *Quorum {
	q := &Quorum{need: len(now)/2 + 1}
	for _, n := range now {
		m := &member{Session: &session.Session{Clock: wire.NewClock()}}
		if n != 0 {
			m.Clock.Heard(n, time.Now())
		}
		q.members = append(q.members, m)
	}
	return q
}

const (
	today = int64(1e15)
	hour  = int64(time.Hour / time.Microsecond)
)

func TestAProposalIsAboveTheClocksAndAllTokensThatWereSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := clocks(today, today+5, today+2)
		for _, c := range []struct {
			what string
			saw  int64
			want int64
		}{
			{"nothing was seen", 0, today + 5},
			{"a former proposal", 0, today + 6},
			{"a token above the clocks", today + 1000, today + 1001},
			{"a lower one", today + 700, today + 1002},
			{"one that no server accepts", today + 13*hour, today + 1003},
		} {
			q.saw(c.saw)
			if got := q.propose(); got != c.want {
				t.Errorf("%s: %d above the clock, want %d", c.what, got-today, c.want-today)
			}
		}
	})
}

func TestAServerWhoseClockIsFarAheadDoesNotCarryTheTokensAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			q    *Quorum
			want int64
		}{
			{clocks(0, 0, 0), 0},
			{clocks(0, today, 0), today},
			{clocks(today, today+hour, today), today + hour},
			{clocks(today, today+100*hour, today), today + 6*hour},
			{clocks(today, today+100*hour, today+100*hour), today + 100*hour}, // the majority is right
			{clocks(today, today+100*hour), today + 6*hour},
		} {
			if got := c.q.now(); got != c.want {
				t.Errorf("now: %d, want %d", got, c.want)
			}
			if limit := c.want + 12*hour; !c.q.credible(limit) || c.q.credible(limit+1) {
				t.Errorf("of clocks that show %d, the highest credible token is not %d", c.want, limit)
			}
		}
	})
}

func TestProposalsGoOnFromTheClocksWhenTheseWereSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := clocks(today)
		q.propose()
		q.members[0].Clock.Heard(today-100*hour, time.Now())
		if got := q.propose(); got != today-100*hour {
			t.Errorf("%d from the clock", got-(today-100*hour))
		}
	})
}

func TestNoTwoProposalsAreTheSame(t *testing.T) {
	q := clocks(0)
	var all sync.Map
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				if token := q.propose(); token <= 0 {
					t.Errorf("proposed: %d", token)
				} else if _, twice := all.LoadOrStore(token, true); twice {
					t.Errorf("proposed twice: %d", token)
				}
			}
		})
	}
	wg.Wait()
}
