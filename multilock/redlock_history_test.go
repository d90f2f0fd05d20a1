package multilock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// redOp is what a client did: it got the lock, with a token, or gave it up or lost it.
type redOp struct {
	lock  bool
	token int64
}

// redFenced is a fenced mutex: held with some token or free, and the last token that there was.
type redFenced struct {
	held bool
	last int64
}

var redModel = porcupine.Model{
	Init: func() any { return redFenced{} },
	Step: func(state, input, _ any) (bool, any) {
		s, op := state.(redFenced), input.(redOp)
		if op.lock {
			return !s.held && op.token > s.last, redFenced{true, op.token}
		}
		return s.held && s.last == op.token, redFenced{false, s.last}
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// What clients saw of real servers that freeze, die, and lose requests and replies, is
// what a fenced mutex could have shown them.
func TestHistoriesAreThoseOfAFencedMutex(t *testing.T) {
	const clients, lease = 4, 800 * time.Millisecond
	r := startServers(t, 5, "--appendonly", "yes", "--appendfsync", "always")
	start := time.Now()
	var mu sync.Mutex // guards history
	var history []porcupine.Operation
	note := func(client int, call, done time.Duration, op redOp) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Call: int64(call), Return: int64(done), Input: op})
	}
	ctx, cancel := context.WithTimeout(bg, 8*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var lost, failed atomic.Int64
	var proxies []*faultproxy.Proxy
	for i := range clients {
		ps, cs := r.proxied(t)
		proxies = append(proxies, ps...)
		m := multilock.NewRedLock("x", sessions(t, cs, rlock.WithWatchdogTimeout(lease))...)
		rnd := rand.New(rand.NewPCG(7, uint64(i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				call := time.Since(start)
				held, hold, err := m.Lock(ctx)
				if err != nil {
					failed.Add(1)
					<-time.After(time.Millisecond)
					continue
				}
				note(i, call, time.Since(start), redOp{true, hold.Token()})
				d := time.Duration(rnd.Int64N(int64(4 * time.Millisecond)))
				if rnd.IntN(30) == 0 {
					d = lease // is renewed
				}
				select {
				case <-time.After(d):
				case <-held.Done():
				}
				call = time.Since(start)
				if hold.Err() != nil { // it was believed until its deadline, or it was told before that; not later
					lost.Add(1)
					call = min(call, hold.Deadline().Sub(start))
				}
				_ = hold.Unlock(bg)
				note(i, call, time.Since(start), redOp{false, hold.Token()})
			}
		})
	}
	rnd := rand.New(rand.NewPCG(7, 99))
	for ctx.Err() == nil { // a minority is bad at any time
		a := rnd.IntN(5)
		switch rnd.IntN(3) {
		case 0:
			r.servers[a].Freeze()
			<-time.After(time.Duration(rnd.Int64N(int64(600 * time.Millisecond))))
			r.servers[a].Thaw()
		case 1:
			r.servers[a].Restart(t)
		case 2:
			for _, p := range proxies[:5*rnd.IntN(clients)] {
				p.OnRequest(func(q *faultproxy.Request) faultproxy.Action {
					return []faultproxy.Action{faultproxy.Pass, faultproxy.Pass, faultproxy.Pass, faultproxy.CutReply, faultproxy.DropAndCut}[q.Seq%5]
				})
			}
			<-time.After(200 * time.Millisecond)
			for _, p := range proxies {
				p.OnRequest(nil)
			}
		}
		<-time.After(time.Duration(rnd.Int64N(int64(150 * time.Millisecond))))
	}
	wg.Wait()
	t.Logf("%d operations, %d holds lost, %d acquisitions failed", len(history), lost.Load(), failed.Load())
	if len(history) < 200 {
		t.Errorf("only %d operations: this shows nothing", len(history))
	}
	if result := porcupine.CheckOperationsTimeout(redModel, history, 20*time.Second); result != porcupine.Ok {
		t.Errorf("the history is not that of a fenced mutex: %v", result)
	}
}

// The check would notice.
func TestHistoriesOfABrokenMutexAreNoticed(t *testing.T) {
	op := func(client int, call, done int64, op redOp) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Call: call, Return: done, Input: op}
	}
	for name, history := range map[string][]porcupine.Operation{
		"two holders":       {op(1, 0, 1, redOp{true, 1}), op(2, 2, 3, redOp{true, 2}), op(1, 4, 5, redOp{false, 1}), op(2, 4, 5, redOp{false, 2})},
		"a token fell back": {op(1, 0, 1, redOp{true, 2}), op(1, 2, 3, redOp{false, 2}), op(2, 4, 5, redOp{true, 1}), op(2, 6, 7, redOp{false, 1})},
		"a token twice":     {op(1, 0, 1, redOp{true, 2}), op(1, 2, 3, redOp{false, 2}), op(2, 4, 5, redOp{true, 2}), op(2, 6, 7, redOp{false, 2})},
	} {
		if porcupine.CheckOperations(redModel, history) {
			t.Errorf("%s: accepted", name)
		}
	}
}
