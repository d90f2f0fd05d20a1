//go:build nightly

package watchdog

import (
	"runtime"
	"testing"
	"time"
	"unsafe"
)

func TestAHundredThousandLeasesAtRestCostNoGoroutineAndLittleMemory(t *testing.T) {
	if size := unsafe.Sizeof(Lease{}); size >= 200 {
		t.Errorf("a Lease takes %d bytes", size)
	}
	heapBytes := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n = 100_000
	w := New(newFake())
	defer w.Close()
	goroutines, before := runtime.NumGoroutine(), heapBytes()
	leases := make([]Lease, n)
	for i := range leases {
		w.Add(&leases[i], in(time.Hour+time.Duration(i)*time.Millisecond), 20*time.Minute)
	}
	if got := runtime.NumGoroutine(); got > goroutines {
		t.Errorf("%d goroutines, %d without leases", got, goroutines)
	}
	if per := (heapBytes() - before) / n; per >= 200 {
		t.Errorf("%d bytes a lease", per)
	}
	runtime.KeepAlive(leases)
}
