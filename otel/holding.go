package otellock

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/lockline/lockline/rlock"
)

// holding remembers when the present holds began, for the gauge lockline.lock.hold.age. The histogram of
// holds cannot show them, because it contains only holds that have ended.
type holding struct {
	mu     sync.Mutex // guards series
	series map[series]*holds
}

type series struct{ kind, pattern string }

type holds struct {
	attributes metric.MeasurementOption
	since      map[hold]time.Time
}

type hold struct {
	session, name string
	token         int64
}

func holdOf(e rlock.Event) hold { return hold{e.Session, e.Name, e.Token} }

func (h *holding) begin(s series, attributes metric.MeasurementOption, e rlock.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.series == nil {
		h.series = map[series]*holds{}
	}
	if h.series[s] == nil {
		h.series[s] = &holds{attributes, map[hold]time.Time{}}
	}
	h.series[s].since[holdOf(e)] = e.At
}

func (h *holding) end(s series, e rlock.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.series[s]; of != nil {
		delete(of.since, holdOf(e))
		if len(of.since) == 0 && len(h.series) > most {
			// There are too many series to report 0 for each of them forever.
			delete(h.series, s)
		}
	}
}

// observe reports the age of the oldest hold of each series, or 0 if none is held.
func (h *holding) observe(_ context.Context, o metric.Float64Observer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.series {
		oldest := time.Duration(0)
		for _, since := range of.since {
			oldest = max(oldest, time.Since(since))
		}
		o.Observe(oldest.Seconds(), of.attributes)
	}
	return nil
}
