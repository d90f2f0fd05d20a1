package multilock

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/wire"
)

// unlockAll is Unlock of many holds at once. Locks that one script can serve are released by one request. The errors
// are in the order of the holds; a hold may be nil.
func unlockAll(ctx context.Context, holds []*mutex.Hold) []error {
	errs := make([]error, len(holds))
	leaving := make([]mutex.Leaving, len(holds))
	var others sync.WaitGroup // they bound their wait themselves
	to := successorTo(holds)
	for n := range holds {
		i := to.order(n, len(holds))
		hd := holds[i]
		switch {
		case hd == nil:
		case mutex.EntryOf(hd) == nil:
			others.Go(func() { errs[i] = hd.Unlock(ctx) })
		default:
			leaving[i], errs[i] = mutex.Leave(ctx, hd, to)
		}
	}
	for i, hd := range holds {
		if l := lockOf(hd); l != nil && leaving[i].Lock() == nil && errs[i] == nil { // the errors of others are not there yet
			leaving[i], errs[i] = to.reclaim(ctx, l)
		}
	}
	sendAll(ctx, leaving, errs)
	others.Wait()
	return errs
}

// sendAll tells Redis what was left, and puts the errors where the holds have theirs. It waits as long as an Unlock
// does, and not for those whose sessions do not wait.
func sendAll(ctx context.Context, leaving []mutex.Leaving, errs []error) {
	waiting, later := map[int]*mutex.Lock{}, map[int]func(error){}
	groups := map[any][]int{}
	for i, v := range leaving {
		l := v.Lock()
		if l == nil {
			continue
		}
		if l.S().AsyncUnlock {
			l.Mu.Lock()
			later[i] = l.Later()
			l.Mu.Unlock()
		} else {
			waiting[i] = l
		}
		if g, ok := groupOf(l.S(), l.Kind, l.Keys); ok && v.Frees() {
			groups[g] = append(groups[g], i)
		} else {
			groups[i] = []int{i}
		}
	}
	type numbered struct {
		i   int
		err error
	}
	done := make(chan numbered, len(leaving))
	for _, group := range groups {
		for some := range slices.Chunk(group, maxUnit) {
			go func() {
				var together []mutex.Leaving
				for _, i := range some {
					together = append(together, leaving[i])
				}
				for n, err := range send(context.WithoutCancel(ctx), together) {
					if over := later[some[n]]; over != nil {
						over(err)
					} else {
						done <- numbered{some[n], err}
					}
				}
			}()
		}
	}
	wait, cancel := handle.UnlockBound(ctx)
	defer cancel()
	for len(waiting) > 0 && wait.Err() == nil {
		select {
		case n := <-done:
			errs[n.i] = n.err
			delete(waiting, n.i)
		case <-wait.Done():
		}
	}
	for i, l := range waiting {
		errs[i] = l.Fail(failure.OfContext(wait))
	}
}

// send releases locks that one script can serve, or tells Redis of one that is left.
func send(ctx context.Context, leaving []mutex.Leaving) []error {
	if len(leaving) == 1 {
		return []error{leaving[0].Send(ctx)}
	}
	l := leaving[0].Lock()
	all := leaving[0].ReleaseRequest()
	all.Script = l.Kind.ReleaseSeveral
	for _, v := range leaving[1:] {
		all.More = append(all.More, v.ReleaseRequest())
	}
	o := l.Store().Release(ctx, &all, wire.Tries)
	replies := strings.Split(o.Reply, ",")
	if o.Err == nil && len(replies) != len(leaving) {
		o.Err = wire.Unexpected(o.Reply)
	}
	errs := make([]error, len(leaving))
	for i, v := range leaving {
		one := o
		if o.Err == nil {
			one.Reply = replies[i]
		}
		errs[i] = v.Released(ctx, one, o.Err != nil && !wire.Judge(o.Err).Transient)
	}
	return errs
}
