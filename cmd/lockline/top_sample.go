package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

// order is how the list is sorted.
type order int

const (
	byWaiting order = iota
	byFirst
	byLease
	byChanges
	byName
	orders int = iota
)

func (o order) String() string { return [...]string{"waiting", "first", "lease", "changes", "name"}[o] }

// needs reports whether the place of a lock in this order cannot be known without a look at it.
func (o order) needs(r topRow) bool {
	switch o {
	case byWaiting, byFirst:
		return r.queue
	case byLease, byChanges:
		return true
	}
	return false
}

// topRow is a lock in the list.
type topRow struct {
	found
	parts
	kind    string
	queues  bool       // Redis knows who waits for it
	state   *lockState // nil: only its keys were seen
	changes float64    // of its holder, a second; below 0: not known
}

// waiting is how many stand in the queue; below 0: not known.
func (r topRow) waiting() int {
	switch {
	case !r.queues || r.state == nil && r.queue || r.state != nil && r.state.Error != "":
		return -1
	case r.state == nil:
		return 0
	}
	return len(r.state.Queue)
}

// first is for how long the first in the queue has waited, in milliseconds; below 0 if there is none, or it is not known.
func (r topRow) first() int64 {
	if r.state == nil || len(r.state.Queue) == 0 {
		return -1
	}
	return r.state.Queue[0].AgeMS
}

// lease is what is left, in milliseconds; of a lock that is not held, or not known to be, more than any.
func (r topRow) lease() int64 {
	if r.state == nil || !r.state.leased() {
		return 1<<63 - 1
	}
	return r.state.RemainingMS
}

// arrange is the rows whose name has the filter in it, in order.
func arrange(rows []topRow, by order, filter string) []topRow {
	list := slices.DeleteFunc(slices.Clone(rows), func(r topRow) bool {
		return !strings.Contains(r.name, filter) && !strings.Contains(printable(r.name), filter)
	})
	slices.SortFunc(list, func(a, b topRow) int {
		c := 0
		switch by {
		case byWaiting:
			c = cmp.Or(compareTrue(a.queue, b.queue), cmp.Compare(b.waiting(), a.waiting()))
		case byFirst:
			c = cmp.Or(compareTrue(a.queue, b.queue), cmp.Compare(b.first(), a.first()))
		case byLease:
			c = cmp.Compare(a.lease(), b.lease())
		case byChanges:
			c = cmp.Compare(b.changes, a.changes)
		}
		return cmp.Or(c, cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})
	return list
}

// compareTrue has what is true come first.
func compareTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// wish is what a page wants to know.
type wish struct {
	pattern    string
	filter     string
	by         order
	from, rows int   // the part of the list that is on the screen
	lock       found // the only one to look at; none if it has no name
}

// sample is the answer to a wish.
type sample struct {
	of        wish
	begun, at time.Time
	rows      []topRow  // of a wish for the list
	state     lockState // of a wish for one lock
	err       error
}

// atOnce is how many locks are asked for at once; these requests share pipelines.
const atOnce = 100

// sample looks for locks as ls does, but asks only for the holders of those that are on the screen, or whose place in the
// list depends on it.
func (o *operator) sample(ctx context.Context, w wish) sample {
	s := sample{of: w, begun: time.Now()}
	if w.lock.name != "" {
		s.state, s.err = o.inspect(ctx, w.lock)
	} else {
		s.rows, s.err = o.rows(ctx, w)
	}
	s.at = time.Now()
	return s
}

// rows is the list in no order. Of each lock in it the keys were seen, and some were looked at.
func (o *operator) rows(ctx context.Context, w wish) ([]topRow, error) {
	seen, err := o.scan(ctx, w.pattern)
	if err != nil {
		return nil, err
	}
	rows := make([]topRow, 0, len(seen))
	for l, p := range seen {
		if l.letter == protocol.Latch { // its key also remembers runs that are over
			p = parts{}
		}
		rows = append(rows, topRow{found: l, parts: p, kind: o.kindName(l.letter), changes: -1,
			queues: !o.redisson && l.letter != rlock.KindRedLock && l.letter != protocol.Latch})
	}
	look := map[found]int{} // its index in asked
	var asked []found
	for i, r := range arrange(rows, w.by, w.filter) {
		// The keys of locks shared with Redisson, and of latches, do not say whether there is anything to show.
		if i >= w.from && i < w.from+w.rows || w.by.needs(r) || o.redisson || r.letter == protocol.Latch {
			look[r.found] = len(asked)
			asked = append(asked, r.found)
		}
	}
	states, err := o.inspectAll(ctx, asked, atOnce)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if at, ok := look[rows[i].found]; ok {
			rows[i].saw(&states[at])
		}
	}
	return slices.DeleteFunc(rows, func(r topRow) bool { return r.state != nil && r.state.gone() }), nil
}

func (r *topRow) saw(s *lockState) {
	r.state = s
	if s.Error == "" {
		r.held, r.queue = s.Held, len(s.Queue) > 0
	}
}

// kindName is a kind for people; that of a newer Lockline is a letter.
func (o *operator) kindName(letter string) string {
	for _, k := range o.kinds {
		if k.letter == letter {
			return k.name
		}
	}
	return letter
}
