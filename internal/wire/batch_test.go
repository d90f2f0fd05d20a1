package wire

import (
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRequestsGoAloneWhereYieldingTakesLong(t *testing.T) {
	s := &Link{}
	now := time.Duration(0)
	alone := func() time.Duration { return max(0, time.Duration(s.aloneUntil.Load())-now) }
	const quick, slow = quickYield + 10*quickEach, quickYield + 10*quickEach + muchLost
	for _, x := range []struct{ took, want time.Duration }{
		{0, 0}, {quick - 1, 0}, {quick + muchLost/2, 0}, {quick + muchLost/2, minAlone},
		{time.Hour, 2 * minAlone},
		{slow, 4 * minAlone}, {slow, 8 * minAlone}, {slow, maxAlone}, {slow, maxAlone},
	} {
		if s.yielded(x.took, 10, now); alone() != x.want {
			t.Errorf("after %v: alone for %v, want %v", x.took, alone(), x.want)
		}
		now += alone()
	}
	for range 300 {
		s.yielded(0, 10, now)
	}
	if s.yielded(slow, 10, now); alone() != minAlone {
		t.Errorf("when many were quick: alone for %v", alone())
	}
}

// ending is a client that ends the goroutine which calls it.
type ending struct{}

func (ending) Pipeline() redis.Pipeliner { runtime.Goexit(); return nil }

func TestWhoSharesAPipelineIsNotLeftWithoutAnAnswer(t *testing.T) {
	l := NewLink(nil, Options{Logger: slog.New(slog.DiscardHandler)})
	r := NewRequest(NewScript("return 1"), []any{"x"})
	b := &batch{requests: []Request{r, r.again()}, over: make(chan struct{})}
	go l.send(ending{}, b)
	<-b.over
	for _, r := range b.requests {
		if v := Judge(r.Err()); !v.Unknown || !v.Resend {
			t.Errorf("%v: %+v", r.Err(), v)
		}
	}
}

// With larger batches client and server wait for each other in turn, and with smaller ones more is written
// than need be.
func TestABatchHasAQuarterOfTheRequestsUnderWayAtMost(t *testing.T) {
	for _, c := range []struct{ underWay, most int }{{17, minBatch}, {32, 8}, {128, 32}, {400, 100},
		{2000, maxBatch}} {
		l := &Link{}
		l.underWay.Store(int64(c.underWay))
		if l.full(c.most-1) || !l.full(c.most) {
			t.Errorf("with %d under way a batch of %d leaves: %v, one of %d: %v",
				c.underWay, c.most-1, l.full(c.most-1), c.most, l.full(c.most))
		}
	}
}
