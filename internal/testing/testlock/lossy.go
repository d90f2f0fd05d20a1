package testlock

import (
	"math/rand/v2"
	"sync"

	"github.com/lockline/lockline/internal/testing/faultproxy"
)

// Lossy lets the proxy p disturb about every second request at random. In one of four cases, the request is
// lost. In the other cases, only its reply is lost. The function call must return the same name for all
// copies of a request, and "" for a request that must not be disturbed. A session usually sends four copies
// at most (wire.Tries), so after three disturbed copies, Lossy forwards the next one. The function replies
// returns the number of replies that were lost so far. To end the losses, call p.OnRequest(nil).
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
