package main

import (
	"math"
	"math/bits"
	"time"
)

const (
	precision = 7                      // bits: a bucket is less than 1% wide
	buckets   = 34 << precision        // up to 2 minutes and more
	linear    = uint64(1) << precision // below, each nanosecond has a bucket
)

// histogram counts durations without allocating, so that measuring the waits
// does not change the allocations measured.
type histogram struct {
	counts [buckets]uint32
	n      int
	max    time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(d)]++
	h.n++
	h.max = max(h.max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile is the middle of the bucket that the q-quantile lies in; 0 without any durations.
func (h *histogram) quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := max(1, int(math.Ceil(q*float64(h.n))))
	for i, n := range h.counts {
		if rank -= int(n); rank <= 0 {
			return min(middle(i), h.max)
		}
	}
	return h.max
}

func bucket(d time.Duration) int {
	ns := uint64(max(d, 0))
	if ns < linear {
		return int(ns)
	}
	shift := bits.Len64(ns) - 1 - precision
	return min(shift<<precision+int(ns>>shift), buckets-1)
}

func middle(i int) time.Duration {
	if i < int(2*linear) {
		return time.Duration(i)
	}
	shift := i>>precision - 1
	low := (uint64(i) - uint64(shift)<<precision) << shift
	return time.Duration(low + 1<<shift/2)
}
