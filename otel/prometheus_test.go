package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockline/lockline/internal/testing/testlock"
	otellock "github.com/lockline/lockline/otel"
	"github.com/lockline/lockline/rlock"
)

// A process has an observer of locks, and a page from which Prometheus reads the metrics.
type process struct {
	*stage
	page   http.Handler
	meters *metric.MeterProvider
}

// logger returns a logger whose warnings are counted.
func (p *process) logger(next slog.Handler) *slog.Logger {
	p.t.Helper()
	handler, err := otellock.NewLogHandler(next, otellock.WithMeterProvider(p.meters))
	testlock.Must(p.t, err)
	return slog.New(handler)
}

func newProcess(t *testing.T, options ...otellock.Option) *process {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	testlock.Must(t, err)
	reader := metric.NewManualReader()
	meters := metric.NewMeterProvider(metric.WithReader(exporter), metric.WithReader(reader))
	p := &process{
		stage:  newStage(t, append(options, otellock.WithMeterProvider(meters))...),
		meters: meters,
		page:   promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}
	p.reader = reader
	return p
}

// scrape returns the value of each series whose name begins with "lockline_".
func (p *process) scrape() map[string]string {
	p.t.Helper()
	page := httptest.NewRecorder()
	p.page.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	values := map[string]string{}
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "lockline_") {
			end := strings.LastIndex(line, " ")
			values[line[:end]] = strings.TrimSpace(line[end:])
		}
	}
	if page.Code != http.StatusOK {
		p.t.Fatalf("%d: %s", page.Code, page.Body)
	}
	return values
}

var scopeLabels = regexp.MustCompile(`,otel_scope_\w+="[^"]*"`)

// counters returns the series that must begin at 0, because otherwise their first increment would not show.
func (p *process) counters() map[string]string {
	p.t.Helper()
	counters := map[string]string{}
	for series, value := range p.scrape() {
		if name, _, _ := strings.Cut(series, "{"); strings.HasSuffix(name, "_total") {
			counters[scopeLabels.ReplaceAllString(series, "")] = value
		}
	}
	return counters
}

// zeros returns the counters of a kind and pattern before the first loss, hand-over or failure.
func zeros(kind, pattern string) map[string]string {
	of := fmt.Sprintf(`lockline_lock_kind="%s",lockline_lock_pattern="%s"`, kind, pattern)
	return map[string]string{
		`lockline_lock_losses_total{` + of + `}`:                                    "0",
		`lockline_lock_handovers_total{lockline_lock_in_memory="true",` + of + `}`:  "0",
		`lockline_lock_handovers_total{lockline_lock_in_memory="false",` + of + `}`: "0",
		`lockline_lock_renewal_failures_total{error_type="timeout",` + of + `}`:     "0",
		`lockline_lock_renewal_failures_total{error_type="_OTHER",` + of + `}`:      "0",
	}
}

func (p *process) wantCounters(want map[string]string) {
	p.t.Helper()
	got := p.counters()
	for series, value := range want {
		if got[series] != value {
			p.t.Errorf("%s is %q, want %s", series, got[series], value)
		}
		delete(got, series)
	}
	for series, value := range got {
		p.t.Errorf("%s is %s, and should not be there", series, value)
	}
}

func TestCountersAreAtZeroFromTheFirstLockOn(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		p := newProcess(t, otellock.WithPattern(func(name string) string {
			before, _, _ := strings.Cut(name, ":")
			return before
		}))
		session := p.session(w)
		p.wantCounters(map[string]string{})

		_, hold := testlock.Lock(t, rlock.New(session, "orders:42"), t.Context())
		want := zeros("reentrant", "orders")
		p.wantCounters(want)

		testlock.Must(t, rlock.New(session, "users:1").Do(t.Context(), func(context.Context) error {
			return nil
		}))
		maps.Copy(want, zeros("reentrant", "users"))
		p.wantCounters(want)

		testlock.ForceUnlock(t, rlock.New(session, "orders:42"))
		if err := hold.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
			t.Fatal(err)
		}
		const of = `{lockline_lock_kind="reentrant",lockline_lock_pattern="orders"}`
		want["lockline_lock_losses_total"+of] = "1"
		p.wantCounters(want)
	})
}

func TestEventsAtOnceLeaveTheCountersRight(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			p.observer.Observe(t.Context(), rlock.Event{Type: rlock.EventLost, LockKind: rlock.KindFair,
				Name: "x", Err: rlock.ErrLost})
		})
	}
	all.Wait()
	want := zeros("fair", otellock.AnyName)
	want[`lockline_lock_losses_total{lockline_lock_kind="fair",lockline_lock_pattern="*"}`] = "8"
	p.wantCounters(want)
}
