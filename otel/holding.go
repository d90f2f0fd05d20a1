package otellock

import (
	"cmp"
	"context"
	"slices"
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
	since      map[grant][]time.Time // when the holds of a grant began; more than one if readers share it
}

type grant struct {
	session, name string
	token         int64
}

func grantOf(e rlock.Event) grant { return grant{e.Session, e.Name, e.Token} }

func (h *holding) begin(s series, attributes metric.MeasurementOption, e rlock.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.series == nil {
		h.series = map[series]*holds{}
	}
	if h.series[s] == nil {
		h.series[s] = &holds{attributes, map[grant][]time.Time{}}
	}
	since := h.series[s].since
	since[grantOf(e)] = append(since[grantOf(e)], e.At)
}

func (h *holding) end(s series, e rlock.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.series[s]; of != nil {
		of.end(e)
		if len(of.since) == 0 && len(h.series) > most {
			// There are too many series to report 0 for each of them forever.
			delete(h.series, s)
		}
	}
}

// end forgets the hold that has ended with this event. Of several holds of one grant, it is the hold that
// began closest to e.Held before e.At.
func (of *holds) end(e rlock.Event) {
	began, start := of.since[grantOf(e)], e.At.Add(-e.Held)
	slices.SortFunc(began, func(a, b time.Time) int {
		return cmp.Compare(b.Sub(start).Abs(), a.Sub(start).Abs())
	})
	if len(began) > 1 {
		of.since[grantOf(e)] = began[:len(began)-1]
	} else {
		delete(of.since, grantOf(e))
	}
}

// observe reports the age of the oldest hold of each series, or 0 if none is held.
func (h *holding) observe(_ context.Context, o metric.Float64Observer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.series {
		oldest := time.Duration(0)
		for _, began := range of.since {
			for _, since := range began {
				oldest = max(oldest, time.Since(since))
			}
		}
		o.Observe(oldest.Seconds(), of.attributes)
	}
	return nil
}
