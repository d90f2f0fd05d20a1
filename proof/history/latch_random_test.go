package history_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
)

// op is one call with its arguments and results.
type op struct {
	call string
	n    int  // TrySet's argument, or Count's result
	yes  bool // result of TrySet or Delete; of a Wait: it returned ErrDeleted
}

// randomLatch models a latch by the count of its run, and by whether the last run was deleted. A Wait takes
// effect at an instant at which the latch has no run.
var randomLatch = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, _ any) (bool, any) {
		st, o := before.(state), input.(op)
		switch o.call {
		case "TrySet":
			if o.yes != (st.n == 0) {
				return false, st
			}
			if o.yes {
				st = state{n: o.n}
			}
		case "CountDown":
			st.n = max(0, st.n-1)
		case "Count":
			return o.n == st.n, st
		case "Delete":
			if o.yes != (st.n > 0) {
				return false, st
			}
			if o.yes {
				st = state{deleted: true}
			}
		case "Wait":
			return st.n == 0 && (st.deleted || !o.yes), st
		}
		return true, st
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

type state struct {
	n       int
	deleted bool
}

// Goroutines of several sessions use one latch at random, while requests and replies are lost. Porcupine must
// find an order of the calls in which the model returns the same results.
// Proves: latch
func TestRandomOperationsAreThoseOfALatch(t *testing.T) {
	t.Parallel()
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		w.Net.SetDelay(time.Millisecond) // so that calls overlap
		for round := range uint64(12) {
			useALatch(t, w, round)
		}
	})
}

func useALatch(t *testing.T, w *testlock.Wire, seed uint64) {
	w.Net.OnRequest(nil)
	var ls []*latch.Latch
	for range 3 {
		ls = append(ls, latch.New(testlock.Batching(testlock.NewSession(t, w.Client), -1), fmt.Sprint(seed)))
	}
	for _, l := range ls {
		_, err := l.Count(t.Context())
		testlock.Must(t, err)
	}
	if seed%3 > 0 {
		testlock.Lossy(w.Net, rand.New(rand.NewPCG(seed, 0)), func(r *faultproxy.Request) string {
			if !r.Is("EVALSHA", "EVAL") || len(r.Args) < 5 {
				return ""
			}
			return fmt.Sprint(r.Args[1:5]) // script, key and id; a look has the id of its run
		})
	}
	var now atomic.Int64 // counts calls and returns, because fake time does not order them
	var mu sync.Mutex    // guards history
	var history []porcupine.Operation
	saw := func(client int, o op, begun int64) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: o, Call: begun,
			Return: now.Add(1)})
	}
	do := func(client int, l *latch.Latch, rnd *rand.Rand) {
		calls := []string{"TrySet", "CountDown", "CountDown", "CountDown", "Count", "Delete"}
		o := op{call: calls[rnd.IntN(len(calls))], n: 1 + rnd.IntN(3)}
		begun := now.Add(1)
		var err error
		switch o.call {
		case "TrySet":
			o.yes, err = l.TrySet(t.Context(), o.n)
		case "CountDown":
			err = l.CountDown(t.Context())
		case "Count": // looks of all sessions have the same name, so all copies may be lost
			for o.n, err = l.Count(t.Context()); err != nil; o.n, err = l.Count(t.Context()) {
			}
		case "Delete":
			o.yes, err = l.Delete(t.Context())
		}
		if err != nil {
			t.Errorf("%s: %v", o.call, err)
		}
		saw(client, o, begun)
	}
	waiting := func(client int, l *latch.Latch) {
		ctx := testlock.Bounded(t)
		begun := now.Add(1)
		err := l.Wait(ctx)
		for err != nil && !errors.Is(err, latch.ErrDeleted) && ctx.Err() == nil { // fails like Count
			begun = now.Add(1)
			err = l.Wait(ctx)
		}
		o := op{call: "Wait", yes: errors.Is(err, latch.ErrDeleted)}
		if err != nil && !o.yes {
			t.Errorf("Wait: %v", err)
		}
		saw(client, o, begun)
	}
	var working, waiters sync.WaitGroup
	for i, l := range ls {
		working.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 25 {
				time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Millisecond))))
				do(i, l, rnd)
			}
		})
	}
	over := make(chan struct{})
	for i := range 4 {
		waiters.Go(func() {
			for range 12 {
				waiting(10+i, ls[i%3])
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	working.Wait()
	close(over)
	w.Net.OnRequest(nil)
	begun := now.Add(1)
	deleted, err := ls[0].Delete(t.Context())
	testlock.Must(t, err)
	saw(20, op{call: "Delete", yes: deleted}, begun)
	waiters.Wait()
	if result := porcupine.CheckOperationsTimeout(randomLatch, history,
		testlock.Patience); result != porcupine.Ok {
		t.Fatalf("seed %d: %v: no latch would have answered so: %+v", seed, result, history)
	}
}

// Proves: latch
func TestTheModelRefusesWhatALatchWouldNotAnswer(t *testing.T) {
	for what, ops := range map[string][]op{
		"a run in a run": {{call: "TrySet", n: 1, yes: true}, {call: "TrySet", n: 1, yes: true}},
		"a count that was lost": {{call: "TrySet", n: 2, yes: true}, {call: "CountDown"},
			{call: "Count", n: 2}},
		"a count that counted twice": {{call: "TrySet", n: 2, yes: true}, {call: "CountDown"},
			{call: "Wait"}},
		"a deletion of nothing": {{call: "Delete", yes: true}},
		"a deletion that never was": {{call: "TrySet", n: 1, yes: true}, {call: "CountDown"},
			{call: "Wait", yes: true}},
	} {
		var history []porcupine.Operation
		for i, o := range ops {
			history = append(history, porcupine.Operation{Input: o, Call: int64(2 * i),
				Return: int64(2*i + 1)})
		}
		if porcupine.CheckOperations(randomLatch, history) {
			t.Errorf("%s is accepted", what)
		}
	}
}
