package otellock

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockline/lockline/rlock"
)

func TestTheOldestHoldHasAnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		o, err := NewObserver(WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
		if err != nil {
			t.Fatal(err)
		}
		tell := func(what rlock.EventType, token int64, depth int) {
			o.Observe(t.Context(), rlock.Event{Type: what, LockKind: rlock.KindReentrant, Name: "n",
				Token: token, Depth: depth, At: time.Now()})
		}
		want := func(age time.Duration) {
			t.Helper()
			var all metricdata.ResourceMetrics
			if err := reader.Collect(context.Background(), &all); err != nil {
				t.Fatal(err)
			}
			for _, m := range all.ScopeMetrics[0].Metrics {
				if m.Name == "lockline.lock.hold.age" {
					if got := m.Data.(metricdata.Gauge[float64]).DataPoints[0].Value; got != age.Seconds() {
						t.Errorf("%v s, want %v", got, age)
					}
					return
				}
			}
			t.Error("no age")
		}
		tell(rlock.EventAcquired, 1, 1)
		time.Sleep(time.Minute)
		tell(rlock.EventAcquired, 1, 2) // a nested hold
		tell(rlock.EventAcquired, 2, 1)
		want(time.Minute)
		tell(rlock.EventReleased, 1, 0)
		time.Sleep(time.Second)
		want(time.Second)
		tell(rlock.EventLost, 2, 0)
		want(0)
	})
}

func TestHoldsThatHaveEndedFillNoMemory(t *testing.T) {
	t.Parallel()
	var h holding
	for i := range 2 * most { // each name has its own pattern
		name := strconv.Itoa(i)
		of, e := series{"fair", name}, rlock.Event{Name: name, Token: int64(i)}
		h.begin(of, nil, e)
		h.end(of, e)
	}
	if len(h.series) != most {
		t.Errorf("%d series are remembered, want %d", len(h.series), most)
	}
}
