// Stall occupies all processors for 10 to 350 ms at a time, again and again until somebody ends it.
// Meanwhile, other programs run as on a busy machine. Run it with a real-time priority: chrt -f 50 stall.
package main

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

func main() {
	for {
		// Stall is idle for three times as long on average, because a test machine is busy, but not dead.
		time.Sleep(between(100*time.Millisecond, 1000*time.Millisecond))
		until := time.Now().Add(between(10*time.Millisecond, 350*time.Millisecond))
		var wg sync.WaitGroup
		for range runtime.NumCPU() {
			wg.Go(func() {
				for time.Now().Before(until) {
				}
			})
		}
		wg.Wait()
	}
}

func between(least, most time.Duration) time.Duration {
	return least + time.Duration(rand.Int64N(int64(most-least)))
}
