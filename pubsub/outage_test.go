package pubsub_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/pubsub"
)

const interval = 3 * time.Second // the default

func TestASilentConnectionIsReplacedAfterTwoIntervals(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a, b := h.Subscribe("a"), h.Subscribe("b")
		expect(t, "a", heard(t, a), "resubscribed")
		expect(t, "b", heard(t, b), "resubscribed")
		half := s.last()
		s.freeze()
		time.Sleep(2*interval - 1)
		synctest.Wait()
		expect(t, "connections until then", s.dials(), 1)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		expect(t, "closed", half.isClosed, true)

		s.set(func() { s.frozen = false })
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, "connections", s.dials(), 2)
		expect(t, "commands", s.commands(), "SUBSCRIBE a b")
		s.publish("a", "1")
		expect(t, "a", heard(t, a), "resubscribed 1")
		expect(t, "b", heard(t, b), "resubscribed")
	})
}

func TestPongsAloneKeepAConnection(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		h.Subscribe("a")
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		expect(t, "connections", s.dials(), 1)
		pings := strings.Count(strings.Join(s.last().commands, " "), "PING")
		expect(t, "pings", pings, int(time.Hour/interval))
	})
}

func TestTheLongestTimesMeanNever(t *testing.T) {
	o := pubsub.Options{PingInterval: math.MaxInt64, Linger: math.MaxInt64}
	bubble(t, o, func(t *testing.T, s *server, h *pubsub.Hub) {
		a := h.Subscribe("a")
		expect(t, "a", heard(t, a), "resubscribed")
		a.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		expect(t, "connections", s.dials(), 1)
		expect(t, "commands", strings.Join(s.last().commands, "; "), "SUBSCRIBE a")
	})
}

func TestAConnectionThatIsCutIsReplacedPromptly(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a := h.Subscribe("a")
		heard(t, a)
		for range 20 {
			s.cutAll()
			time.Sleep(20 * time.Millisecond) // the first backoff, because each reply resets it
			expect(t, "a", heard(t, a), "resubscribed")
		}
	})
}

func TestASubscriptionMadeDuringAnOutageWaitsForTheNextConnection(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		h.Subscribe("a")
		synctest.Wait()
		s.set(func() { s.refuse = errCut })
		s.cutAll()
		synctest.Wait()
		a := h.Subscribe("a")
		expect(t, "during the outage", heard(t, a), "")
		s.set(func() { s.refuse = nil })
		time.Sleep(2 * time.Second)
		expect(t, "after it", heard(t, a), "resubscribed")
	})
}

func TestDialsBackOff(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		s.set(func() { s.refuse = errCut })
		a := h.Subscribe("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		for i := range s.dialed[1:] {
			gap, most := s.dialed[i+1].Sub(s.dialed[i]), min(20*time.Millisecond<<i, time.Second)
			if i > 6 {
				most = time.Second
			}
			if gap < most/2 || gap > most {
				t.Errorf("pause %d: %v, want between %v and %v", i, gap, most/2, most)
			}
		}
		if n := s.dials(); n < 60 {
			t.Errorf("%d dials in a minute", n)
		}
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Second)
		expect(t, "in the end", heard(t, a), "resubscribed")
	})
}

func TestAnOutageIsLoggedOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	bubble(t, pubsub.Options{Logger: logger}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a := h.Subscribe("a")
		synctest.Wait()
		for range 2 {
			s.set(func() { s.refuse = errCut })
			s.cutAll()
			time.Sleep(time.Minute)
			s.set(func() { s.refuse = nil })
			time.Sleep(time.Minute)
		}
		a.Close() // must not be logged as the end of the outage
		time.Sleep(time.Minute)
	})
	expect(t, "warnings", strings.Count(log.String(), "level=WARN"), 2)
	expect(t, "infos", strings.Count(log.String(), "level=INFO"), 2)
	if !strings.Contains(log.String(), errCut.Error()) {
		t.Errorf("the reason is missing:\n%s", &log)
	}
}

func TestARefusalIsLoggedAsOne(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	bubble(t, pubsub.Options{Logger: logger}, func(t *testing.T, s *server, h *pubsub.Hub) {
		s.set(func() { s.refuse = refusal("NOPERM no") })
		h.Subscribe("a")
		time.Sleep(time.Minute)
	})
	expect(t, "of a refusal", strings.Count(log.String(), "lockline: subscription refused"), 1)
	expect(t, "of a lost connection", strings.Count(log.String(), "lockline: subscription lost"), 0)
}

func TestWhatIsSubscribedWhileTheOwnerDialsIsSentAsOneCommand(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		dialing := make(chan struct{})
		s.set(func() { s.dialing = dialing })
		h.Subscribe("a")
		synctest.Wait()
		for _, name := range strings.Fields("b c b d e e") {
			h.Subscribe(name)
		}
		synctest.Wait()
		close(dialing)
		synctest.Wait()
		_, second, _ := strings.Cut(s.commands(), "SUBSCRIBE a; SUBSCRIBE ")
		names := strings.Fields(second) // in any order
		slices.Sort(names)
		expect(t, "the second command", strings.Join(names, " "), "b c d e")
	})
}

func TestCloseLeavesADialThatHeedsNoContextToEndByItself(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		dialing := make(chan struct{})
		s.set(func() { s.dialing = dialing })
		h.Subscribe("a")
		synctest.Wait()
		before := time.Now()
		h.Close()
		if took := time.Since(before); took >= time.Second {
			t.Errorf("Close took %v", took)
		}
		expect(t, "closed", s.last().isClosed, false)
		close(dialing)
		synctest.Wait()
		expect(t, "closed once dialed", s.last().isClosed, true)
	})
}

// patient is a Conn whose dial returns only when its context ends, as a dial of go-redis may do.
type patient struct{ *conn }

func (p patient) Subscribe(ctx context.Context, _ ...string) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCloseEndsADialThatHeedsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t}
		h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return patient{s.dial(ctx).(*conn)} },
			pubsub.Options{})
		h.Subscribe("a")
		synctest.Wait()
		before := time.Now()
		h.Close()
		expect(t, "Close took", time.Since(before), 0)
		expect(t, "closed", s.last().isClosed, true)
	})
}

func TestADialThatTakesTwoIntervalsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t}
		h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn {
			if s.dials() == 0 {
				return patient{s.dial(ctx).(*conn)}
			}
			return s.dial(ctx)
		}, pubsub.Options{})
		defer h.Close()
		a := h.Subscribe("a")
		time.Sleep(2*interval + 20*time.Millisecond)
		expect(t, "a", heard(t, a), "resubscribed")
	})
}

func TestCloseEndsEverythingAndCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t}
		h := pubsub.NewHub(s.dial, pubsub.Options{})
		a := h.Subscribe("a")
		expect(t, "a", heard(t, a), "resubscribed")
		h.Close()
		h.Close()
		expect(t, "closed", s.last().isClosed, true)

		late := h.Subscribe("a")
		time.Sleep(time.Hour)
		expect(t, "subscribed after Close", heard(t, late), "")
		expect(t, "connections", s.dials(), 1)
		late.Close()
		a.Close()
	})
	dial := func(context.Context) pubsub.Conn { panic("it was never used") }
	pubsub.NewHub(dial, pubsub.Options{}).Close()
}

// panicking is a log handler that panics each time.
type panicking struct {
	slog.Handler
	calls *int
}

func (f panicking) Handle(context.Context, slog.Record) error {
	*f.calls++
	panic("on purpose")
}

// Proves: panics
func TestALoggerThatPanicsEndsNothing(t *testing.T) {
	calls := 0
	log := slog.New(panicking{slog.NewTextHandler(io.Discard, nil), &calls})
	bubble(t, pubsub.Options{Logger: log}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a := h.Subscribe("a")
		heard(t, a)
		for range 3 {
			s.cutAll()
			time.Sleep(time.Second)
			expect(t, "a", heard(t, a), "resubscribed")
		}
		s.publish("a", "1")
		expect(t, "a", heard(t, a), "1")
	})
	if calls < 6 {
		t.Errorf("3 outages began and ended, and %d calls of the logger", calls)
	}
}

// fragile is a Conn that panics in one of its methods.
type fragile struct {
	pubsub.Conn
	in string
}

func (f fragile) Subscribe(ctx context.Context, channels ...string) error {
	if f.in == "Subscribe" {
		panic("on purpose")
	}
	return f.Conn.Subscribe(ctx, channels...)
}

func (f fragile) Ping(ctx context.Context, payload ...string) error {
	if f.in == "Ping" {
		panic("on purpose")
	}
	return f.Conn.Ping(ctx, payload...)
}

func (f fragile) Receive(ctx context.Context) (any, error) {
	m, err := f.Conn.Receive(ctx)
	if f.in == "Receive" && err == nil {
		panic("on purpose")
	}
	return m, err
}

// Proves: panics
func TestAConnectionThatPanicsIsReplaced(t *testing.T) {
	for _, in := range []string{"dial", "Subscribe", "Ping", "Receive"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{t: t}
				var log bytes.Buffer
				tries := 0
				h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn {
					if tries++; tries > 1 {
						return s.dial(ctx)
					}
					if in == "dial" {
						panic("on purpose")
					}
					return fragile{s.dial(ctx), in}
				}, pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				defer h.Close()
				a := h.Subscribe("a")
				time.Sleep(2 * interval)
				expect(t, "a", heard(t, a), "resubscribed")
				s.publish("a", "1")
				expect(t, "a", heard(t, a), "1")
				if got := log.String(); !strings.Contains(got, "on purpose") ||
					!strings.Contains(got, "outage_test.go") {
					t.Errorf("neither panic nor stack: %s", got)
				}
			})
		})
	}
}
