package testlock

import (
	"math/rand/v2"
	"sync"

	"github.com/lockline/lockline/internal/testing/faultproxy"
)

// Lossy has the proxy lose every second request on average: one in four of those before the server gets it,
// the others after it, so that the reply is lost. call names the call that a request is a copy of, or returns
// "" for what is to be left alone. A request is sent four times at most, so the fourth copy gets through. The
// function that Lossy returns counts the replies that were lost. OnRequest(nil) ends it.
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
