package watchdog

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"
)

// never is later than everything.
const never = time.Duration(math.MaxInt64)

// A Lease is one lease being kept. Embed it in what it belongs to; the zero value with Owner set is ready to
// [Watchdog.Add], once.
type Lease struct {
	Owner any // for the Keeper, to find its way back; set before Add

	// What follows is guarded by Watchdog.mu. Times are counted from Watchdog.start.
	deadline time.Duration // the last one, if the lease is kept no more
	next     time.Duration // when the next renewal leaves; never, if every is 0
	since    time.Duration // when the last good reply came, or its interval was set
	every    time.Duration // between renewals; 0: only watched
	backoff  time.Duration // before the retry that is planned; 0 after a success
	place    int           // in the heap, from 1; 0: not added yet; -1: kept no more

	// confirming: it is not renewed, but the next renewal is sent all the same, to find out whether the
	// server still has it (Confirm).
	confirming bool
}

func (l *Lease) event() time.Duration { return min(l.next, l.deadline) }

// A Result is what became of one renewal.
type Result struct {
	Gone bool  // the server says: not yours any more
	Err  error // the renewal failed or its outcome is unknown: it is retried until the deadline
	// Deadline is the new local deadline of a lease that was renewed, counted from before the request was
	// sent. Zero means that the renewal has not prolonged it.
	Deadline time.Time
}

// A Keeper is what a Watchdog needs of its user. Its methods are called from many goroutines, never with a
// lock held, and may use the Watchdog, except to close it. All but Renew must be quick: leases that end at
// the same instant are told one after another.
type Keeper interface {
	// Server names the server that l's renewal goes to by any comparable value.
	Server(l *Lease) any

	// Renew sends the renewals of one batch, 1 to MaxBatch leases of one server, waits for the replies, and
	// returns a Result for each, in order. ctx ends at the latest deadline in the batch, or when the Watchdog
	// closes. A lease may be removed while Renew runs; then its Result is ignored. After [Watchdog.Confirm],
	// the batch may have leases that are only watched: their renewal must not prolong them on the server.
	Renew(ctx context.Context, server any, batch []*Lease) []Result

	// Lost is called once for each Add whose lease ended: because its deadline passed, or because it was
	// Gone.
	Lost(l *Lease, deadlinePassed bool)

	// Failed reports a renewal that failed and will be retried while the lease lives.
	// It can come shortly after l was removed.
	Failed(l *Lease, err error)
}

// A Watchdog keeps leases. Make it with [New]; its methods may be called from any goroutine. Those of a zero
// or nil Watchdog panic, and so does one that gets a nil Lease.
type Watchdog struct {
	keeper Keeper
	start  time.Time       // with a monotonic reading, from which all times inside are counted
	ctx    context.Context // of all flights; ends with Close
	cancel context.CancelFunc

	// busy counts what Close waits for: the armed timer, ticks, and callbacks. It is raised under mu while
	// not closed, or by one that is counted already, so never from zero while Close waits.
	busy sync.WaitGroup

	// Guards what follows and the unexported fields of every Lease; nothing is called while it is held.
	mu     sync.Mutex
	leases leaseHeap
	timer  *time.Timer
	armed  time.Duration // the timer fires at this time or earlier; never, if it need not fire
	phase  time.Duration // where the slots of renewals start

	confirmedAt time.Duration // when the requests of the last Confirm were or will be sent; 0: there was none
}

// New returns a Watchdog that renews leases through k. It runs nothing until a lease is added. It panics if k
// is nil.
func New(k Keeper) *Watchdog {
	if k == nil {
		panic("watchdog: New: the Keeper is nil")
	}
	w := &Watchdog{keeper: k, start: time.Now(), armed: never}
	w.timer = time.AfterFunc(never, w.tick)
	w.timer.Stop()
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Add keeps l until its deadline and has it renewed about every so often; with every 0, l is only watched.
// A deadline that has passed ends l at once, like any other with a call of Lost.
// Add reports false, and keeps nothing, if the Watchdog is closed. It panics if l was added before.
func (w *Watchdog) Add(l *Lease, deadline time.Time, every time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return false
	}
	if l.place != 0 {
		panic("watchdog: the lease was added before")
	}
	now := time.Since(w.start)
	if len(w.leases) == 0 {
		w.phase = now
	}
	l.deadline = deadline.Sub(w.start)
	w.setInterval(l, every, now)
	heap.Push(&w.leases, l)
	w.arm(now)
	return true
}

// Remove keeps l no longer, and reports whether it was still kept. If so, Lost is not called for it, and a
// renewal in flight cannot bring it back.
func (w *Watchdog) Remove(l *Lease) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.place <= 0 {
		return false
	}
	// The timer may now fire for nothing, which is cheaper than setting it for each lease.
	heap.Remove(&w.leases, l.place-1)
	return true
}

// Extend moves l's deadline to a later one that was learned elsewhere, never to an earlier one.
// It does nothing if l is not kept, or if its deadline has passed.
func (w *Watchdog) Extend(l *Lease, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.place <= 0 || l.deadline <= time.Since(w.start) {
		return
	}
	l.deadline = max(l.deadline, deadline.Sub(w.start))
	heap.Fix(&w.leases, l.place-1)
}

// SetInterval has l renewed about every so often from now on, or, with 0, not any more.
// It does nothing if l is not kept, or if that is its interval already.
func (w *Watchdog) SetInterval(l *Lease, every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.place <= 0 || every == l.every {
		return
	}
	now := time.Since(w.start)
	w.setInterval(l, every, now)
	heap.Fix(&w.leases, l.place-1)
	w.arm(now)
}

// The time from a Confirm to the requests, and between those of two. In the first, a renewal that is in
// flight can be answered.
const (
	confirmAfter = 20 * time.Millisecond
	confirmPause = 200 * time.Millisecond
)

// Confirm has every lease renewed soon that has had no good reply since a given time, at which an outage
// began or ended. The server may have restarted without its data, or be another one. A lease that is only
// watched is asked for, too, and keeps its deadline. Renewals that fail are retried as always. It does not
// block.
func (w *Watchdog) Confirm(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || len(w.leases) == 0 {
		return
	}
	now, before := time.Since(w.start), since.Sub(w.start)
	at := w.confirmedAt
	if at <= now { // otherwise one is planned, which will do
		at = now + confirmAfter
		if w.confirmedAt > 0 {
			at = max(at, w.confirmedAt+confirmPause)
		}
		w.confirmedAt = at
	}
	for _, l := range w.leases {
		if l.since <= before && l.next > at {
			l.next, l.confirming = at, l.every == 0
		}
	}
	heap.Init(&w.leases)
	w.arm(now)
}

// Deadline returns l's deadline: the last one, if l is not kept any more, and the zero Time if it never was.
func (w *Watchdog) Deadline(l *Lease) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.place == 0 {
		return time.Time{}
	}
	return w.start.Add(l.deadline)
}

// Close drops all leases without calling Lost, ends the contexts of all renewals, and waits for callbacks
// that run, save for Renew. A Renew may ignore its context, so its calls may return after Close, and their
// results are ignored. (One that was about to begin may even begin after Close, with a context that has
// ended.) No other callback runs after Close. Close must not be called from a callback, for it would wait for
// itself.
func (w *Watchdog) Close() {
	w.mu.Lock()
	w.cancel()
	for len(w.leases) > 0 {
		heap.Pop(&w.leases)
	}
	if w.timer.Stop() {
		w.busy.Done()
	}
	w.mu.Unlock()
	w.busy.Wait()
}

// arm sees to it that the timer fires in time for the next event. The caller holds mu.
func (w *Watchdog) arm(now time.Duration) {
	if len(w.leases) == 0 || w.leases[0].event() >= w.armed {
		return
	}
	w.armed = w.leases[0].event()
	if !w.timer.Reset(w.armed - now) { // else a tick that was waiting counts for this one, too
		w.busy.Add(1)
	}
}

// tick is what the timer runs. The timer is armed again before any callback runs, so a slow one delays no
// later tick. Leases that are due leave in a flight for each server.
func (w *Watchdog) tick() {
	defer w.busy.Done()
	lost, due, now := w.collect()
	if len(due) > 0 {
		w.busy.Go(func() { // so neither Server nor Lost waits for the other
			flights := make(map[any][]*Lease)
			for _, l := range due {
				server := w.keeper.Server(l)
				flights[server] = append(flights[server], l)
			}
			for server, leases := range flights {
				go w.fly(server, leases, now)
			}
		})
	}
	for _, l := range lost {
		w.keeper.Lost(l, true)
	}
}

// collect takes from the heap the leases whose deadline has passed, and those that are due for a renewal.
func (w *Watchdog) collect() (lost, due []*Lease, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now = time.Since(w.start)
	for len(w.leases) > 0 && w.leases[0].event() <= now {
		l := w.leases[0]
		if l.deadline <= now {
			heap.Pop(&w.leases)
			lost = append(lost, l)
			continue
		}
		due = append(due, l)
		// In case it does not come back, it will take off again. In time, the distance doubles: a lease with
		// hours to live must not send hundreds of renewals to a server that hangs.
		every := l.interval()
		l.next = slot(now+max(every/2, now-l.since-2*every), every/4, w.phase)
		heap.Fix(&w.leases, 0)
	}
	w.armed = never
	w.arm(now)
	return lost, due, now
}

const (
	shortest = time.Millisecond // between renewals or retries
	longest  = never / 8        // between renewals; keeps sums from overflowing
)

// The callers of setInterval, plan and planRetry hold mu, and put the lease into its new place in the heap.

// setInterval makes every the interval of l and plans its next renewal. A lease that is short at first, as
// that of a lock that was handed over, is soon renewed: until then a short outage ends it.
func (w *Watchdog) setInterval(l *Lease, every, now time.Duration) {
	l.every = 0
	if every > 0 {
		l.every = min(max(every, shortest), longest)
	}
	w.plan(l, now, now, 20)
}

// plan has l, which is new or was just renewed, renewed an interval after from, or sooner if its deadline is
// near: when 1/part of the time until then has passed.
func (w *Watchdog) plan(l *Lease, from, now, part time.Duration) {
	l.since, l.backoff, l.next, l.confirming = now, 0, never, false
	if l.every == 0 {
		return
	}
	l.next = slot(from+l.every, l.every/4, w.phase)
	if left := l.deadline - now; left < 2*l.every {
		// But not ever closer: with a Keeper that adds nothing to the deadline, it would never be reached.
		l.next = min(l.next, now+max(left/part, shortest))
	}
}

// interval is every, or that by which retries of a lease are spaced that is only confirmed.
func (l *Lease) interval() time.Duration {
	if l.every == 0 {
		return 10 * time.Second
	}
	return l.every
}

// planRetry has l renewed again after a failure. The slots keep together what failed together, or a server
// that comes back would be greeted with a flight for each lease. They are counted from New, and so they
// differ between processes: those that lost a server at one moment do not come back in step.
func (w *Watchdog) planRetry(l *Lease, now time.Duration) {
	every := l.interval()
	least := max(every/16, shortest)
	l.backoff = max(min(2*l.backoff, every/2), least)
	// A server that is back just before the deadline is back in time.
	for l.backoff > (l.deadline-now)/2 && l.backoff >= 2*least {
		l.backoff /= 2
	}
	l.next = slot(now+l.backoff, l.backoff/2, 0)
}

// slot returns the start of the slot that t is in; slots are width wide and one starts at phase, which is not
// after t. So the result is after t-width.
func slot(t, width, phase time.Duration) time.Duration {
	return t - (t-phase)%width
}

// leaseHeap orders leases by their next event. It is a container/heap that tells each lease its place.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].event() < h[j].event() }

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	*h = append(*h, l)
	l.place = len(*h)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil // or the lease could not be collected
	*h = (*h)[:last]
	l.place = -1
	return l
}
