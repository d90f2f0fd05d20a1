package wire

import (
	"context"
	"log/slog"
	"runtime"
	"testing"

	"github.com/redis/go-redis/v9"
)

// ending is a client that ends the goroutine that calls it.
type ending struct{ Client }

func (ending) Pipeline() redis.Pipeliner { runtime.Goexit(); return nil }

func (ending) Process(context.Context, redis.Cmder) error { runtime.Goexit(); return nil }

func TestARequestWhoseGoroutineEndsIsUnderWayNoMore(t *testing.T) {
	l := NewLink(ending{}, Options{Context: t.Context()})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = keyed("x").ask(t.Context(), l)
	}()
	<-done
	if n := l.whole.inFlight.Load(); n != 0 {
		t.Errorf("%d are under way", n)
	}
}

func TestWhoSharesAPipelineIsNotLeftWithoutAnAnswer(t *testing.T) {
	l := NewLink(nil, Options{Logger: slog.New(slog.DiscardHandler)})
	b := newBatch(t.Context())
	for range 2 {
		b.requests = append(b.requests, NewRequest(NewScript("return 1"), []any{"x"}, nil))
	}
	go l.send(ending{}, b)
	<-b.done
	for _, r := range b.requests {
		if v := Judge(r.Err()); !v.Unknown || !v.Resend {
			t.Errorf("%v: %+v", r.Err(), v)
		}
	}
}

// With larger batches, client and server wait for each other in turn. With smaller batches, there are more
// writes than necessary.
func TestABatchHasAQuarterOfTheRequestsUnderWayAtMost(t *testing.T) {
	for _, c := range []struct{ inFlight, most int }{{17, minBatch}, {32, 8}, {128, 32}, {400, 100},
		{2000, maxBatch}} {
		s := &server{}
		s.inFlight.Store(int64(c.inFlight))
		if s.full(c.most-1) || !s.full(c.most) {
			t.Errorf("with %d under way a batch of %d leaves: %v, one of %d: %v",
				c.inFlight, c.most-1, s.full(c.most-1), c.most, s.full(c.most))
		}
	}
}
