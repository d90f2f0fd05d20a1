package otellock

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// oldest remembers when the present waiters began to wait, for the gauge lockline.lock.wait.age. The
// histogram of waits cannot show them, because it contains only waits that have ended.
type oldest struct {
	mu     sync.Mutex // guards series
	series map[series]*waits
}

type waits struct {
	attributes metric.MeasurementOption
	begun      map[time.Time]int // number of waiters, by the time at which they began to wait
}

func (o *oldest) begin(s series, attributes metric.MeasurementOption, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.series == nil {
		o.series = map[series]*waits{}
	}
	if o.series[s] == nil {
		o.series[s] = &waits{attributes, map[time.Time]int{}}
	}
	o.series[s].begun[at]++
}

func (o *oldest) end(s series, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.series[s]
	if of == nil {
		return
	}
	if of.begun[at]--; of.begun[at] <= 0 {
		delete(of.begun, at)
	}
	if len(of.begun) == 0 && len(o.series) > most {
		// There are too many series to report 0 for each of them forever.
		delete(o.series, s)
	}
}

// observe reports the age of the oldest wait of each series, or 0 if no call waits.
func (o *oldest) observe(_ context.Context, to metric.Float64Observer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, of := range o.series {
		age := time.Duration(0)
		for begun := range of.begun {
			age = max(age, time.Since(begun))
		}
		to.Observe(age.Seconds(), of.attributes)
	}
	return nil
}
