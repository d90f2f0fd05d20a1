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

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/proof/history"
	"github.com/lockline/lockline/rlock"
)

// What clients saw of real servers that freeze, die, and lose requests and replies, is
// what a fenced mutex could have shown them.
func TestHistoriesAreThoseOfAFencedMutex(t *testing.T) {
	const clients, lease = 4, 800 * time.Millisecond
	r := startServers(t, 5, "--appendonly", "yes", "--appendfsync", "always")
	start := time.Now()
	var mu sync.Mutex // guards ops
	var ops []history.Op
	note := func(client int, kind history.Kind, token int64, call, done time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, history.Op{Owner: fmt.Sprint(client), Kind: kind, Token: token, Call: int64(call), Return: int64(done)})
	}
	ctx, cancel := context.WithTimeout(bg, 4*testlock.Patience)
	defer cancel()
	shows := func() bool { // something, on any machine
		mu.Lock()
		defer mu.Unlock()
		return len(ops) >= 200 && time.Since(start) > 8*time.Second
	}
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
				note(i, history.Acquire, hold.Token(), call, time.Since(start))
				d := time.Duration(rnd.Int64N(int64(4 * time.Millisecond)))
				if rnd.IntN(30) == 0 {
					d = lease // is renewed
				}
				select {
				case <-time.After(d):
				case <-held.Done():
				}
				call = time.Since(start)
				end := history.Release
				if hold.Err() != nil { // it was believed until its deadline, or it was told before that; not later
					lost.Add(1)
					end = history.Lose
					call = min(call, hold.Deadline().Sub(start))
				}
				note(i, end, hold.Token(), call, call)
				_ = hold.Unlock(bg)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(7, 99))
	for !shows() && ctx.Err() == nil { // a minority is bad at any time
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
	cancel()
	wg.Wait()
	t.Logf("%d operations, %d holds lost, %d acquisitions failed", len(ops), lost.Load(), failed.Load())
	if len(ops) < 200 {
		t.Errorf("only %d operations: this shows nothing", len(ops))
	}
	if result := porcupine.CheckOperationsTimeout(history.Model(false, true), history.Operations(ops), 20*time.Second); result != porcupine.Ok {
		t.Errorf("the history is not that of a fenced mutex: %v", result)
	}
}
