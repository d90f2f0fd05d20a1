package otellock

import (
	"context"
	"errors"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockline/lockline/rlock"
)

const (
	scope = "github.com/lockline/lockline/otel"

	kindKey    = attribute.Key("lockline.lock.kind")
	patternKey = attribute.Key("lockline.lock.pattern")
	nameKey    = attribute.Key("lockline.lock.name")
	sessionKey = attribute.Key("lockline.session.id")
	tokenKey   = attribute.Key("lockline.lock.token")
	memoryKey  = attribute.Key("lockline.lock.in_memory")
	countKey   = attribute.Key("lockline.lock.hold_count")
	errorKey   = attribute.Key("error.type")
)

// The values of error.type for which the method begin makes counters of failed renewals.
const (
	timeout = "timeout"
	other   = "_OTHER"
)

// AnyName is the pattern of every lock if [WithPattern] is not used.
const AnyName = "*"

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	pattern func(name string) string
	names   bool
}

// An Option sets up an [Observer] or a [LogHandler].
type Option func(*config)

// WithMeterProvider sets the provider of the metrics. By default, and if p is nil, the provider is
// otel.GetMeterProvider().
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider sets the provider of the spans. By default, and if p is nil, the provider is
// otel.GetTracerProvider().
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithPattern sets a function that returns the pattern of a name, for example "orders:*" for "orders:42". The
// pattern is an attribute of the metrics, and a part of the names of spans. Each event of each lock calls the
// function, so it must be quick, and safe for use by several goroutines at once. The function should return
// few different patterns, because each pattern makes new time series. By default, and if pattern is nil, all
// names have the pattern [AnyName].
func WithPattern(pattern func(name string) string) Option {
	return func(c *config) { c.pattern = pattern }
}

// WithNames adds the attribute lockline.lock.name, the name of the lock, to each span. Metrics never have
// this attribute.
func WithNames() Option { return func(c *config) { c.names = true } }

// An Observer is an [rlock.Observer] that makes metrics and traces. It may serve many sessions.
type Observer struct {
	config
	tracer  trace.Tracer
	waiting waiting
	holding holding
	oldest  oldest
	seen    seen

	wait, hold                          metric.Float64Histogram
	waiters, holds                      metric.Int64UpDownCounter
	handovers, losses, renewalsThatFail metric.Int64Counter
}

var _ rlock.Observer = (*Observer)(nil)

// seconds has the boundaries of the histograms. The lowest boundaries suit requests to a local Redis, and the
// highest ones suit long jobs.
var seconds = metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1,
	2.5, 5, 10, 30, 60, 300)

// NewObserver makes an Observer. It returns an error if the meter returns an error.
func NewObserver(options ...Option) (*Observer, error) {
	o := new(Observer)
	for _, option := range options {
		if option != nil {
			option(&o.config)
		}
	}
	if o.meters == nil {
		o.meters = otel.GetMeterProvider()
	}
	if o.tracers == nil {
		o.tracers = otel.GetTracerProvider()
	}
	if o.pattern == nil {
		o.pattern = func(string) string { return AnyName }
	}
	o.tracer = o.tracers.Tracer(scope)
	m := o.meters.Meter(scope)
	var errs [9]error
	o.wait, errs[0] = m.Float64Histogram("lockline.lock.wait.duration", metric.WithUnit("s"), seconds,
		metric.WithDescription("Time that Lock or TryLock took, granted or not, "+
			"without re-entries that were granted"))
	o.hold, errs[1] = m.Float64Histogram("lockline.lock.hold.duration", metric.WithUnit("s"), seconds,
		metric.WithDescription("Time from the grant of a lock to its release or loss"))
	o.waiters, errs[2] = m.Int64UpDownCounter("lockline.lock.waiters", metric.WithUnit("{waiter}"),
		metric.WithDescription("Acquisitions that wait now"))
	o.holds, errs[3] = m.Int64UpDownCounter("lockline.lock.holds", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held now"))
	o.handovers, errs[4] = m.Int64Counter("lockline.lock.handovers", metric.WithUnit("{handover}"),
		metric.WithDescription("Locks that were granted to an acquisition that had waited"))
	o.losses, errs[5] = m.Int64Counter("lockline.lock.losses", metric.WithUnit("{loss}"),
		metric.WithDescription("Locks that were lost while they were held"))
	o.renewalsThatFail, errs[6] = m.Int64Counter("lockline.lock.renewal.failures",
		metric.WithUnit("{failure}"),
		metric.WithDescription("Renewals that failed, to be tried again"))
	_, errs[7] = m.Float64ObservableGauge("lockline.lock.hold.age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest hold, 0 if none is held"),
		metric.WithFloat64Callback(o.holding.observe))
	_, errs[8] = m.Float64ObservableGauge("lockline.lock.wait.age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest wait that has not ended, 0 if there is none"),
		metric.WithFloat64Callback(o.oldest.observe))
	return o, errors.Join(errs[:]...)
}

// Observe handles an event. Sessions call Observe for each of their events. A nil or zero Observer ignores
// all events.
func (o *Observer) Observe(ctx context.Context, e rlock.Event) {
	if o == nil || o.meters == nil {
		return
	}
	kind, pattern := e.LockKind.String(), o.pattern(e.Name)
	attributes := []attribute.KeyValue{kindKey.String(kind), patternKey.String(pattern)}
	all := metric.WithAttributes(attributes...)
	if o.seen.first(kind, pattern) {
		o.begin(all)
	}
	if e.Err != nil {
		attributes = append(attributes, errorKey.String(errorType(e.Err)))
	}
	withError := metric.WithAttributes(attributes...)

	switch e.Type {
	case rlock.EventWaiting:
		if o.waiting.begin(ctx, e) {
			o.waiters.Add(ctx, 1, all)
			o.oldest.begin(series{kind, pattern}, all, e.At)
		}
	case rlock.EventAcquired, rlock.EventNotAcquired:
		since, waited := o.waiting.end(ctx, e)
		if waited {
			o.waiters.Add(ctx, -1, all)
			o.oldest.end(series{kind, pattern}, since)
		}
		if e.Type == rlock.EventNotAcquired || e.Depth == 1 {
			o.wait.Record(ctx, e.Wait.Seconds(), withError)
		}
		if e.Type == rlock.EventAcquired && e.Depth == 1 {
			o.holds.Add(ctx, 1, all)
			o.holding.begin(series{kind, pattern}, all, e)
			if waited || e.HandedOver {
				o.handovers.Add(ctx, 1, all, metric.WithAttributes(memoryKey.Bool(e.HandedOver)))
			}
		}
		o.trace(ctx, e, since, attributes)
	case rlock.EventReleased, rlock.EventLost:
		o.holds.Add(ctx, -1, all)
		o.holding.end(series{kind, pattern}, e)
		o.hold.Record(ctx, e.Held.Seconds(), withError)
		if errors.Is(e.Err, rlock.ErrLost) { // an EventReleased has this error if the release finds the loss
			o.losses.Add(ctx, 1, all)
		}
	case rlock.EventRenewFailed:
		o.renewalsThatFail.Add(ctx, 1, withError)
	}
}

// begin makes the counters of a kind and pattern, with the value 0. Otherwise Prometheus would not count the
// first increment of a counter as an increase. For a histogram, a 0 would count as a measurement.
func (o *Observer) begin(all metric.MeasurementOption) {
	ctx := context.Background() // with the context of an event, an exemplar would refer to its trace
	o.losses.Add(ctx, 0, all)
	for _, inMemory := range []bool{false, true} {
		o.handovers.Add(ctx, 0, all, metric.WithAttributes(memoryKey.Bool(inMemory)))
	}
	for _, errorType := range []string{timeout, other} {
		o.renewalsThatFail.Add(ctx, 0, all, metric.WithAttributes(errorKey.String(errorType)))
	}
}

// errorType returns the value of error.type for an error. There are few values, as the semantic conventions
// of OpenTelemetry require.
func errorType(err error) string {
	switch {
	case errors.Is(err, rlock.ErrLocked):
		return "locked"
	case errors.Is(err, rlock.ErrLost):
		return "lost"
	case errors.Is(err, rlock.ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return timeout
	}
	return other
}

// trace makes the span of an acquisition after the acquisition has ended. waiting is the time at which it
// began to wait, or zero if it did not wait.
func (o *Observer) trace(
	ctx context.Context, e rlock.Event, waiting time.Time, attributes []attribute.KeyValue,
) {
	begun := e.At.Add(-e.Wait) // may be slightly late, because e.At is a little later than the end of e.Wait
	if !waiting.IsZero() && waiting.Before(begun) {
		begun = waiting
	}
	_, span := o.tracer.Start(ctx, "lock "+o.pattern(e.Name), trace.WithTimestamp(begun),
		trace.WithAttributes(attributes...))
	if span.IsRecording() {
		span.SetAttributes(sessionKey.String(e.Session))
		if o.names {
			span.SetAttributes(nameKey.String(e.Name))
		}
		if e.Type == rlock.EventAcquired {
			span.SetAttributes(tokenKey.Int64(e.Token), countKey.Int(e.Depth))
		}
		if !waiting.IsZero() {
			span.AddEvent("waiting", trace.WithTimestamp(waiting))
		}
		if e.Err != nil && !errors.Is(e.Err, rlock.ErrLocked) { // ErrLocked is a usual result, not a failure
			span.SetStatus(codes.Error, e.Err.Error())
		}
	}
	span.End(trace.WithTimestamp(e.At))
}
