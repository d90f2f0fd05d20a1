package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/rlock"
)

// A waitEntry is an entry of a lock's queue, with the holders for which it waits. --json prints it as JSON.
type waitEntry struct {
	Lock      string    `json:"lock"`
	LockBytes []byte    `json:"lock_bytes,omitempty"` // the name, if it is not UTF-8
	Kind      string    `json:"kind"`
	Waiter    waiter    `json:"waiter"`
	Since     time.Time `json:"since"` // start of the wait, by this machine's clock
	Holders   []holder  `json:"holders"`
	// Circle is the number of the circle to which this wait belongs, from 1 on. Zero means that it belongs to
	// no circle.
	Circle int `json:"circle,omitempty"`
}

// A waitingCircle has the waits of sessions that seem to wait for each other.
type waitingCircle []waitEntry

// leastWait is the shortest wait that can be part of a circle. Most shorter waits end by themselves.
const leastWait = time.Second

// circleDoubt says why a circle may not be a deadlock.
const circleDoubt = "this may be a deadlock, or not: a session has many goroutines, and the " +
	"goroutine that waits for a lock may not be the goroutine that holds another"

// waits returns all entries of queues and the circles among them. The entries are sorted by lock. The entries
// of one lock are in the order of its queue. If some nodes of a Cluster fail, waits returns the entries at
// the other nodes, and an *incomplete.
//
// Locks are inspected at different moments. Only waits that began before the first inspection can be part of
// a circle, so all waits of a circle lasted at the same time.
func (o *operator) waits(ctx context.Context) ([]waitEntry, []waitingCircle, error) {
	begun := time.Now()
	states, lacking := o.list(ctx)
	if lacking != nil && !errors.As(lacking, new(*incomplete)) {
		return nil, nil, lacking
	}
	all, found, err := o.waitsOf(ctx, states, max(leastWait, time.Since(begun)))
	return all, found, cmp.Or(err, lacking)
}

// waitsOf returns the same as waits, for locks that are already listed. Waits that are shorter than least are
// part of no circle.
func (o *operator) waitsOf(
	ctx context.Context, states []lockState, least time.Duration,
) ([]waitEntry, []waitingCircle, error) {
	now := time.Now()
	var all []waitEntry
	for _, s := range states {
		for _, w := range s.Queue {
			age := time.Duration(w.AgeMS) * time.Millisecond
			all = append(all, waitEntry{Lock: s.Name, LockBytes: s.NameBytes, Kind: s.Kind, Waiter: w,
				Since: now.Add(-age).UTC(), Holders: slices.Clip(s.Holders)})
		}
	}
	elections := map[string]bool{} // whether the fair lock of this name belongs to an election
	for {
		found := numberCircles(all, least, elections)
		numKnown := len(elections)
		for _, w := range slices.Concat(found...) {
			if _, known := elections[w.Lock]; known || w.Kind != rlock.KindFair.String() {
				continue
			}
			_, ok, err := election.New(o.session, w.Lock).Leader(ctx)
			if err != nil {
				return nil, nil, err
			}
			elections[w.Lock] = ok
		}
		if len(elections) == numKnown {
			return all, found, nil
		}
	}
}

// numberCircles sets the Circle of each wait, and returns the circles. It leaves out
//   - waits shorter than least;
//   - holders that have unlocked, because the time of HoldAtLeast ends by itself;
//   - waits for fair locks of elections, because candidates wait as long as another candidate leads.
//     elections has the names of these locks.
func numberCircles(all []waitEntry, least time.Duration, elections map[string]bool) (found []waitingCircle) {
	var edges []edge
	var of []int // edges[i] is for the wait all[of[i]]
	for i, w := range all {
		all[i].Circle = 0
		short := time.Duration(w.Waiter.AgeMS)*time.Millisecond < least
		if short || w.Kind == rlock.KindFair.String() && elections[w.Lock] {
			continue
		}
		e := edge{from: w.Waiter.Session, any: w.Kind == rlock.KindSemaphore.String()}
		for _, h := range w.Holders {
			if !strings.HasSuffix(h.Owner, "~") {
				e.to = append(e.to, h.Session)
			}
		}
		edges, of = append(edges, e), append(of, i)
	}
	for n, indexes := range circles(edges) {
		var c waitingCircle
		for _, i := range indexes {
			all[of[i]].Circle = n + 1
			c = append(c, all[of[i]])
		}
		found = append(found, c)
	}
	return found
}

// inCircle returns one holder, for a column with room for only one. If possible, this holder is a member of
// the circle c. inCircle returns false if the lock has no holder.
func (w waitEntry) inCircle(c waitingCircle) (h holder, ok bool) {
	member := func(h holder) bool {
		return h.Session != w.Waiter.Session &&
			slices.ContainsFunc(c, func(other waitEntry) bool { return other.Waiter.Session == h.Session })
	}
	if i := slices.IndexFunc(w.Holders, member); i >= 0 {
		return w.Holders[i], true
	}
	if len(w.Holders) == 0 {
		return holder{}, false
	}
	return w.Holders[0], true
}

// since returns the start of the latest wait, which has closed the circle.
func (c waitingCircle) since() time.Time {
	return slices.MaxFunc(c, func(a, b waitEntry) int { return a.Since.Compare(b.Since) }).Since
}

// String names each session of the circle, the lock for which it waits, and the holder of that lock.
func (c waitingCircle) String() string {
	var parts []string
	for _, w := range c {
		h, _ := w.inCircle(c)
		parts = append(parts, fmt.Sprintf("%v waits for %q (%s) since %s, which %v holds since %s",
			w.Waiter.party, w.Lock, w.Kind, dated(w.Since), h.party, h.sinceText()))
	}
	return strings.Join(parts, "; ")
}

func (a age) sinceText() string {
	if a.Since == nil {
		return "an unknown time"
	}
	return dated(*a.Since)
}

func dated(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// key identifies the circle. It does not change while the same sessions wait for the same locks.
func (c waitingCircle) key() string {
	var parts []string
	for _, w := range c {
		parts = append(parts, w.Kind+" "+strconv.Quote(w.Lock)+" "+w.Waiter.Owner)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// listWaits carries out lockline ls --waits.
func (o *operator) listWaits(ctx context.Context, errOut io.Writer) error {
	pattern := o.pattern
	o.pattern = "*" // a circle may lead through locks of any name
	all, found, err := o.waits(ctx)
	lacking, lacks := errors.AsType[*incomplete](err)
	if err != nil && !lacks {
		return err
	}
	if err := o.showWaits(all, found, pattern, !lacks, errOut); err != nil || !lacks {
		return err
	}
	return lacking
}

// showWaits writes the waits for the locks whose names match the pattern, and their circles. If there are no
// waits, it says so on a terminal, but only if the list is complete.
func (o *operator) showWaits(
	all []waitEntry, found []waitingCircle, pattern string, complete bool, errOut io.Writer,
) error {
	shown := slices.DeleteFunc(all, func(w waitEntry) bool { return !matches(pattern, w.Lock) })
	if o.json {
		return o.write(append([]waitEntry{}, shown...))
	}
	if len(shown) == 0 {
		if o.pattern = pattern; complete && terminal(o.out) {
			complain(errOut, o.nothing())
		}
		return nil
	}
	rows := [][]string{{"NAME", "KIND", "FOR", "WAITER", "HOLDER", "HELD FOR", "CIRCLE"}}
	for _, w := range shown {
		rows = append(rows, w.cells(found))
	}
	if err := writeTable(o.out, rows); err != nil {
		return err
	}
	for i, c := range found {
		if !slices.ContainsFunc(shown, func(w waitEntry) bool { return w.Circle == i+1 }) {
			continue
		}
		if _, err := fmt.Fprintf(o.out, "\ncircle %d, closed since %s: %s.\nSee %s.\n",
			i+1, dated(c.since()), circleDoubt, waitsPage); err != nil {
			return err
		}
	}
	return nil
}

// waitsPage is the heading of the documentation about circles.
const waitsPage = operationsPage + "#sessions-wait-for-each-other"

// cells returns the row for w in the table of lockline ls --waits.
func (w waitEntry) cells(found []waitingCircle) []string {
	cells := []string{printable(w.Lock), w.Kind, short(w.Waiter.AgeMS), w.Waiter.String(), "", "", ""}
	var c waitingCircle
	if w.Circle > 0 {
		c = found[w.Circle-1]
		cells[6] = strconv.Itoa(w.Circle)
	}
	if h, ok := w.inCircle(c); ok {
		if cells[4], cells[5] = h.String(), h.heldFor(); len(w.Holders) > 1 {
			cells[4] += fmt.Sprintf(" and %d more", len(w.Holders)-1)
		}
	}
	return cells
}

// judgeWaits returns the doctor's judgment of circles.
func judgeWaits(found []waitingCircle) judgment {
	if len(found) == 0 {
		return judgment{fine, "no sessions seem to wait for each other", ""}
	}
	var texts []string
	for _, c := range found {
		texts = append(texts, fmt.Sprintf("closed since %s: %v", dated(c.since()), c))
	}
	return judgment{warning, strings.Join(texts, "; and "), circleDoubt + ". Run the doctor again: if they " +
		"still wait, print the goroutines of these processes (kill -QUIT PID, which ends them)"}
}

// circleSearch searches all locks for circles in the background, while watch looks at a single lock.
type circleSearch struct {
	o     *operator
	found chan searched // result of a search that has ended
	busy  bool
	next  time.Time // time from which the next search may begin
	last  searched
}

type searched struct {
	circles []waitingCircle
	err     error
	took    time.Duration
}

// A search reads all keys, so watch begins a search at most once in circleInterval. After a search, it pauses
// for at least circleShare times the duration of the search.
const (
	circleInterval = 5 * time.Second
	circleShare    = 10
)

func newCircleSearch(o *operator) *circleSearch {
	all := *o
	all.pattern = "*"
	if !o.redisson {
		all.kinds = lockKinds
	}
	return &circleSearch{o: &all, found: make(chan searched, 1)}
}

// look takes the result of a search that has ended. It begins the next search if the search is due, and if a
// waiter has waited long for a lock of states. It does not block. If a search has failed, look returns the
// error, unless the search before has failed, too.
func (s *circleSearch) look(ctx context.Context, states []lockState) (err error) {
	select {
	case latest := <-s.found:
		if s.last.err == nil {
			err = latest.err
		}
		s.busy, s.last = false, latest
		s.next = time.Now().Add(max(circleInterval, circleShare*s.last.took))
	default:
	}
	long := func(w waiter) bool { return w.AgeMS >= leastWait.Milliseconds() }
	waitedFor := func(s lockState) bool { return slices.ContainsFunc(s.Queue, long) }
	if s.busy || time.Now().Before(s.next) || !slices.ContainsFunc(states, waitedFor) {
		return err
	}
	s.busy = true
	go func() {
		begun := time.Now()
		_, circles, err := s.o.waits(ctx)
		s.found <- searched{circles, err, time.Since(begun)}
	}()
	return err
}

// of returns a circle that the last search has found, and to which a present waiter of the lock belongs. If
// there is no such circle, it returns nil.
func (s *circleSearch) of(st lockState) waitingCircle {
	for _, c := range s.last.circles {
		for _, w := range c {
			waits := func(q waiter) bool { return q.Owner == w.Waiter.Owner }
			if w.Lock == st.Name && w.Kind == st.Kind && slices.ContainsFunc(st.Queue, waits) {
				return c
			}
		}
	}
	return nil
}

// mark returns the text that watch adds to the line of a lock.
func (c waitingCircle) mark() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("; suspected circle since %s: %v", dated(c.since()), c)
}
