package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
	otellock "github.com/lockline/lockline/otel"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stage is an observer with its metrics and spans.
type stage struct {
	t        *testing.T
	observer *otellock.Observer
	reader   *metric.ManualReader
	spans    *tracetest.SpanRecorder
	tracers  *trace.TracerProvider
}

func newStage(t *testing.T, options ...otellock.Option) *stage {
	t.Helper()
	s := &stage{t: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	s.tracers = trace.NewTracerProvider(trace.WithSpanProcessor(s.spans))
	observer, err := otellock.NewObserver(append([]otellock.Option{
		otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(s.reader))),
		otellock.WithTracerProvider(s.tracers)}, options...)...)
	testlock.Must(t, err)
	s.observer = observer
	return s
}

func (s *stage) session(w *testlock.Wire, options ...rlock.SessionOption) *rlock.Session {
	s.t.Helper()
	return testlock.NewSession(s.t, w.Client, append(options, rlock.WithObserver(s.observer))...)
}

// value returns the sum of a metric's points that have all these attributes ("key=value"). It adds up the
// values of a counter, or the counts of a histogram.
func (s *stage) value(name string, attributes ...string) (sum int64) {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	testlock.Must(s.t, s.reader.Collect(context.Background(), &all))
	matches := func(set attribute.Set) bool {
		text := "," + set.Encoded(attribute.DefaultEncoder()) + ","
		for _, a := range attributes {
			if !strings.Contains(text, ","+a+",") {
				return false
			}
		}
		return true
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if matches(p.Attributes) {
						sum += p.Value
					}
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					if matches(p.Attributes) {
						sum += p.Value
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if matches(p.Attributes) {
						sum += int64(p.Count)
					}
				}
			}
		}
	}
	return sum
}

func (s *stage) want(want int64, name string, attributes ...string) {
	s.t.Helper()
	if got := s.value(name, attributes...); got != want {
		s.t.Errorf("%s %v is %d, want %d", name, attributes, got, want)
	}
}

func (s *stage) eventually(want int64, name string, attributes ...string) {
	s.t.Helper()
	testlock.Eventually(s.t, fmt.Sprint(name, attributes, " is ", want), func() bool {
		return s.value(name, attributes...) == want
	})
}

func TestMetricsFollowALock(t *testing.T) {
	lockers := map[string]func(s *rlock.Session, name string) rlock.Locker{
		"rwlock": func(s *rlock.Session, name string) rlock.Locker { return rwlock.New(s, name) },
		"semaphore": func(s *rlock.Session, name string) rlock.Locker {
			return semaphore.New(s, name, 1).Locker(1)
		},
	}
	for kind, newMutex := range testlock.Kinds {
		lockers[kind] = func(s *rlock.Session, name string) rlock.Locker { return newMutex(s, name) }
	}
	for kind, newLocker := range lockers {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				metricsFollow(t, w, kind, newLocker)
			})
		})
	}
}

func metricsFollow(
	t *testing.T, w *testlock.Wire, kind string, newLocker func(*rlock.Session, string) rlock.Locker,
) {
	s := newStage(t, otellock.WithPattern(func(name string) string {
		before, _, _ := strings.Cut(name, ":")
		return before
	}))
	lock := newLocker(s.session(w, rlock.WithHandover(time.Hour)), "orders:42")
	of := []string{"lockline.lock.kind=" + kind, "lockline.lock.pattern=orders"}

	ctx, hold := testlock.Lock(t, lock, t.Context())
	var nested *rlock.Hold
	if kind != "semaphore" {
		_, nested = testlock.Lock(t, lock, ctx)
	}
	s.want(1, "lockline.lock.holds", of...)
	s.want(1, "lockline.lock.wait.duration", of...) // a nested Lock does not count

	_, _, err := lock.TryLock(t.Context())
	if !errors.Is(err, rlock.ErrLocked) {
		t.Fatal(err)
	}
	s.want(1, "lockline.lock.wait.duration", append(of, "error.type=locked")...)

	canceled, cancel := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	waiters.Go(func() { _, _, _ = lock.Lock(canceled) })
	waiters.Go(func() {
		_, second, err := lock.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		_ = second.Unlock(t.Context())
	})
	s.eventually(2, "lockline.lock.waiters", of...)
	cancel()
	s.eventually(1, "lockline.lock.waiters", of...)
	s.eventually(1, "lockline.lock.wait.duration", append(of, "error.type=canceled")...)
	if nested != nil {
		testlock.Must(t, nested.Unlock(t.Context()))
	}
	testlock.Must(t, hold.Unlock(t.Context()))
	waiters.Wait()

	s.eventually(0, "lockline.lock.holds", of...)
	s.want(0, "lockline.lock.waiters", of...)
	s.want(1, "lockline.lock.handovers",
		append(of, fmt.Sprintf("lockline.lock.in_memory=%v", kind != "fair"))...)
	s.want(2, "lockline.lock.hold.duration", of...)
	s.want(4, "lockline.lock.wait.duration")
	s.want(0, "lockline.lock.losses")
}

func TestLossesAreCountedOnceHoweverTheyAreLearned(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := newStage(t)
		lock := rlock.New(s.session(w), "x")

		_, hold := testlock.Lock(t, lock, t.Context())
		testlock.ForceUnlock(t, lock)
		if err := hold.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) { // the release finds the loss
			t.Fatal(err)
		}
		s.want(1, "lockline.lock.losses")

		// Next, the session notices that a lease has ended, before Unlock is called.
		_, hold = testlock.Lock(t, lock, t.Context(), rlock.WithLease(time.Second))
		s.eventually(2, "lockline.lock.losses")
		if err := hold.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
			t.Fatal(err)
		}
		s.want(2, "lockline.lock.hold.duration", "error.type=lost", "lockline.lock.pattern="+otellock.AnyName)
		s.want(0, "lockline.lock.holds")
		s.want(2, "lockline.lock.losses")
	})
}

func TestFailedRenewalsAreCounted(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := newStage(t)
		_, hold := testlock.Lock(t, rlock.New(s.session(w), "x"), t.Context())
		w.SetError("LOADING it will be back")
		time.Sleep(11 * time.Second)
		if s.value("lockline.lock.renewal.failures", "error.type=_OTHER") == 0 {
			t.Error("no renewal has failed")
		}
		w.SetError("")
		_ = hold.Unlock(t.Context())
	})
}

func TestSpansLastAsLongAsTheWait(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := newStage(t, otellock.WithNames())
		session := s.session(w)
		lock := rlock.New(session, "x")
		ctx, request := s.tracers.Tracer("test").Start(t.Context(), "request")

		const wait = 20 * time.Millisecond
		calls := []time.Time{time.Now()} // each span is between two of these times
		_, hold := testlock.Lock(t, lock, ctx)
		calls = append(calls, time.Now())
		_, _, err := lock.Lock(ctx, rlock.WaitAtMost(wait))
		if !errors.Is(err, rlock.ErrLocked) {
			t.Fatal(err)
		}
		calls = append(calls, time.Now())
		brief, cancel := context.WithCancel(ctx)
		go func() {
			s.eventually(1, "lockline.lock.waiters")
			cancel()
		}()
		_, _, err = lock.Lock(brief)
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		calls = append(calls, time.Now())
		testlock.Must(t, hold.Unlock(ctx))

		spans := s.spans.Ended()
		if len(spans) != 3 {
			t.Fatalf("%d spans, want 3", len(spans))
		}
		for i, span := range spans {
			attributes := map[attribute.Key]attribute.Value{}
			for _, a := range span.Attributes() {
				attributes[a.Key] = a.Value
			}
			if span.Name() != "lock *" || span.Parent().SpanID() != request.SpanContext().SpanID() ||
				attributes["lockline.lock.name"].AsString() != "x" ||
				attributes["lockline.session.id"].AsString() != session.ID() {
				t.Errorf("span %d: %v, %v", i, span.Name(), attributes)
			}
			if span.StartTime().Before(calls[i]) || span.EndTime().After(calls[i+1]) {
				t.Errorf("span %d, %v to %v, is not within its call, %v to %v",
					i, span.StartTime(), span.EndTime(), calls[i], calls[i+1])
			}
			switch i {
			case 0:
				if attributes["lockline.lock.token"].AsInt64() != hold.Token() ||
					attributes["lockline.lock.hold_count"].AsInt64() != 1 || len(span.Events()) != 0 {
					t.Errorf("granted: %v, %v", attributes, span.Events())
				}
			default:
				waited := span.Events()
				if len(waited) != 1 || waited[0].Name != "waiting" ||
					waited[0].Time.Before(span.StartTime()) || waited[0].Time.After(span.EndTime()) {
					t.Errorf("events of span %d: %v", i, waited)
				}
			}
		}
		if d := spans[1].EndTime().Sub(spans[1].StartTime()); d < wait {
			t.Errorf("a wait of %v has a span of %v", wait, d)
		}
		if got := spans[1].Status().Code; got != codes.Unset {
			t.Errorf("to be locked out is %v", got)
		}
		if got := spans[2].Status().Code; got != codes.Error {
			t.Errorf("a wait that its context ended is %v", got)
		}
	})
}

func TestNamesStayOutOfMetricsAndSpansUnlessAskedFor(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := newStage(t)
		lock := rlock.New(s.session(w), "customer 4711")
		testlock.Must(t, lock.Do(t.Context(), func(context.Context) error { return nil }))
		var all metricdata.ResourceMetrics
		testlock.Must(t, s.reader.Collect(t.Context(), &all))
		for _, m := range all.ScopeMetrics[0].Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
				for _, p := range h.DataPoints {
					text := p.Attributes.Encoded(attribute.DefaultEncoder())
					if strings.Contains(text, "4711") {
						t.Errorf("%s: %s", m.Name, text)
					}
				}
			}
		}
		for _, span := range s.spans.Ended() {
			for _, a := range span.Attributes() {
				if strings.Contains(span.Name()+a.Value.String(), "4711") {
					t.Errorf("%s: %v", span.Name(), a)
				}
			}
		}
	})
}

// A fields is a context that cannot be compared, because it has a slice.
type fields struct {
	context.Context
	values []any
}

func TestWaitersEndAtZero(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := newStage(t)
		w.Net.SetDelay(time.Millisecond)
		session := s.session(w)
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				ctx := t.Context() // most calls of Lock get this context
				switch i % 4 {
				case 0:
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
					defer cancel()
				case 1:
					ctx = fields{ctx, nil}
				}
				_, hold, _ := rlock.New(session, "x").Lock(ctx)
				_ = hold.Unlock(context.Background())
				_, hold, _ = rlock.New(session, "x").TryLock(ctx)
				_ = hold.Unlock(context.Background())
			})
		}
		all.Wait()
		s.want(0, "lockline.lock.waiters")
		s.want(0, "lockline.lock.holds")
		if s.value("lockline.lock.handovers") == 0 {
			t.Error("nobody waited: this shows nothing")
		}
	})
}
