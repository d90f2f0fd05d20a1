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
	Counts [buckets]uint32
	N      int
	Max    time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.Counts[bucket(d)]++
	h.N++
	h.Max = max(h.Max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.N += o.N
	h.Max = max(h.Max, o.Max)
}

// quantile is the middle of the bucket that the q-quantile lies in; 0 without any durations.
func (h *histogram) quantile(q float64) time.Duration {
	if h.N == 0 {
		return 0
	}
	rank := max(1, int(math.Ceil(q*float64(h.N))))
	for i, n := range h.Counts {
		if rank -= int(n); rank <= 0 {
			return min(middle(i), h.Max)
		}
	}
	return h.Max
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
