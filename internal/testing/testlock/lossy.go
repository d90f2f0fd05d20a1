package testlock

import (
	"math/rand/v2"
	"sync"

	"github.com/lockline/lockline/internal/testing/faultproxy"
)

// Lossy lets the proxy lose every second request on average. One in four of the lost requests does not reach
// the server. Of the others, the reply is lost. call returns the same name for all copies of a request, and
// "" for a request that must not be lost. A request is sent four times at most, so Lossy does not lose the
// fourth copy. The function that Lossy returns counts the lost replies. OnRequest(nil) ends the losses.
func Lossy(
	p *faultproxy.Proxy, rnd *rand.Rand, call func(r *faultproxy.Request) string,
) (replies func() int) {
	var mu sync.Mutex // guards rnd, inARow, lost
	inARow, lost := map[string]int{}, 0
	p.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		mu.Lock()
		defer mu.Unlock()
		call := call(r)
		if call == "" {
			return faultproxy.Pass
		}
		if inARow[call] == 3 || rnd.IntN(2) == 0 {
			inARow[call] = 0
			return faultproxy.Pass
		}
		inARow[call]++
		if rnd.IntN(4) == 0 {
			return faultproxy.DropAndCut
		}
		lost++
		return faultproxy.CutReply
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return lost
	}
}
