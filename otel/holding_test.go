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
		ends := func(what rlock.EventType, token int64, held time.Duration) {
			o.Observe(t.Context(), rlock.Event{Type: what, LockKind: rlock.KindReentrant, Name: "n",
				Token: token, At: time.Now(), Held: held})
		}
		begins := func(token int64, depth int) {
			o.Observe(t.Context(), rlock.Event{Type: rlock.EventAcquired, LockKind: rlock.KindReentrant,
				Name: "n", Token: token, Depth: depth, At: time.Now()})
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
		begins(1, 1)
		time.Sleep(time.Minute)
		begins(1, 2) // a re-entry, which is no new hold for the gauge
		begins(2, 1)
		want(time.Minute)
		ends(rlock.EventReleased, 1, time.Minute)
		time.Sleep(time.Second)
		want(time.Second)
		begins(2, 1) // another reader shares the grant
		time.Sleep(time.Second)
		ends(rlock.EventReleased, 2, time.Second)
		want(2 * time.Second)
		begins(2, 1)
		ends(rlock.EventLost, 2, 2*time.Second)
		time.Sleep(time.Second)
		want(time.Second)
		ends(rlock.EventLost, 2, time.Second)
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
