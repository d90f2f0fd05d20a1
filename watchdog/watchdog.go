package watchdog

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"
)

// never is later than any other time.
const never = time.Duration(math.MaxInt64)

// A Lease is a lease that a Watchdog keeps. It can be a field of the object that has the lease. Set Owner,
// leave all other fields zero, and call [Watchdog.Add] once.
type Lease struct {
	Owner any // lets the Keeper find the object that has the lease; set before Add

	// The fields below are guarded by Watchdog.mu. Times are counted from Watchdog.start. If a lease is only
	// watched, a renewal is planned only after Confirm. This renewal finds out whether the server still has
	// the lease.
	deadline time.Duration // the last known deadline; kept after the lease has ended
	next     time.Duration // time of the next renewal; never: none is planned
	since    time.Duration // time of Add, of the last good reply, or of the last change of the interval
	every    time.Duration // time between renewals; 0 means the lease is only watched
	backoff  time.Duration // pause before the planned retry; 0 after a success
	place    int           // index in the heap plus 1; 0 means not added yet; -1 means not kept any more
}

// event returns the time at which the Watchdog has to look at the lease.
func (l *Lease) event() time.Duration { return min(l.next, l.deadline) }

// A Result is the result of one renewal.
type Result struct {
	Gone bool  // the server does not have the lease any more
	Err  error // the renewal failed or its outcome is unknown; the Watchdog retries until the deadline
	// Deadline is the new deadline of a lease that was renewed, by the local clock. It is computed from a
	// time before the request was sent. Zero means that the renewal has not prolonged the lease.
	Deadline time.Time
}

// A Keeper sends the renewals of a Watchdog and is notified of lost leases. Its methods are called from many
// goroutines, and the Watchdog holds no mutex then. They may use the Watchdog, but must not close it. All
// methods except Renew must be quick, because each of them is called for one lease after another.
type Keeper interface {
	// Server returns a comparable value that names the server to which l's renewal goes.
	Server(l *Lease) any

	// Renew sends the renewals of one batch, and waits for the replies. The batch has 1 to MaxBatch leases of
	// one server. Renew returns a Result for each lease, in the order of the batch. ctx ends at the latest
	// deadline in the batch, or when the Watchdog is closed. If a lease is removed while Renew runs, its
	// Result is ignored. After [Watchdog.Confirm], the batch may have leases that are only watched. Renew
	// must check whether the server still has these leases, but must not prolong them there.
	Renew(ctx context.Context, server any, batch []*Lease) []Result

	// Lost is called once for each lease that has ended. Either its deadline has passed, or the Result of a
	// renewal was Gone. In the first case, deadlinePassed is true.
	Lost(l *Lease, deadlinePassed bool)

	// Failed is called after a renewal of l has failed. The Watchdog retries while the lease lasts. Failed
	// may be called shortly after l was removed.
	Failed(l *Lease, err error)
}

// A Watchdog keeps leases. Make it with [New]. Its methods may be called from any goroutine. They may panic
// if the Watchdog is nil or zero, or if they are called with a nil Lease.
type Watchdog struct {
	keeper Keeper
	start  time.Time       // has a monotonic reading; all times in this package are counted from it
	ctx    context.Context // context of all flights; ends with Close
	cancel context.CancelFunc

	// busy counts the armed timer, the ticks, and all callbacks except Renew. Close waits for all of these.
	// busy is only raised while mu is held and the Watchdog is not closed, or by a goroutine that is itself
	// counted. So busy is never raised from zero while Close waits.
	busy sync.WaitGroup

	// mu guards the fields below and the unexported fields of every Lease. No callback is called with mu
	// held.
	mu     sync.Mutex
	leases leaseHeap
	timer  *time.Timer
	armed  time.Duration // the timer fires at this time or earlier; never: the timer need not fire
	phase  time.Duration // start of the first slot of renewals

	confirmedAt time.Duration // time planned for the requests of the last Confirm; 0: there was no Confirm
}

// New returns a Watchdog that renews leases through k. It starts no goroutine before a lease is added. It
// panics if k is nil.
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

// Add makes the Watchdog keep l, which ends at the deadline unless it is renewed. The parameter every is the
// time between two renewals. If every is 0, l is only watched: it is not renewed, and Lost is called at the
// deadline. If the deadline has already passed, Lost is called at once, by another goroutine. If the Watchdog
// is closed, Add does nothing and returns false. It panics if l was added before.
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

// Remove makes the Watchdog stop keeping l, and reports whether l was still kept. If so, Lost is not called
// for l, and a renewal in flight has no effect on l.
func (w *Watchdog) Remove(l *Lease) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.place <= 0 {
		return false
	}
	// The timer is left as it is, and may fire although no lease is due. This is cheaper than setting the
	// timer at each Remove.
	heap.Remove(&w.leases, l.place-1)
	return true
}

// Extend moves l's deadline to a later time. It is for a caller that has renewed the lease itself. It does
// nothing if the new deadline is earlier, if l is not kept, or if l's deadline has passed.
func (w *Watchdog) Extend(l *Lease, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.place <= 0 || l.deadline <= time.Since(w.start) {
		return
	}
	l.deadline = max(l.deadline, deadline.Sub(w.start))
	heap.Fix(&w.leases, l.place-1)
}

// SetInterval sets the time between renewals of l. With 0, l is only watched from now on. SetInterval does
// nothing if l is not kept, or already has this interval.
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

const (
	confirmAfter = 20 * time.Millisecond  // from Confirm to its requests; renewals in flight can return
	confirmPause = 200 * time.Millisecond // shortest time between the requests of two Confirms
)

// Confirm plans an early renewal of all leases that have had no good reply since the given time. Call Confirm
// with the time at which an outage was noticed, and with the same time again when the outage has ended. After
// an outage, the server may have restarted without its data, or another server may have taken its place.
// Leases that are only watched are also checked, and keep their deadlines. Renewals that fail are retried as
// always. Confirm does not block.
func (w *Watchdog) Confirm(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || len(w.leases) == 0 {
		return
	}
	now, before := time.Since(w.start), since.Sub(w.start)
	at := w.confirmedAt
	if at <= now { // otherwise the requests of an earlier Confirm are still to be sent
		at = now + confirmAfter
		if w.confirmedAt > 0 {
			at = max(at, w.confirmedAt+confirmPause)
		}
		w.confirmedAt = at
	}
	for _, l := range w.leases {
		if l.since <= before && l.next > at {
			l.next = at
		}
	}
	heap.Init(&w.leases)
	w.arm(now)
}

// Deadline returns l's deadline. If l is not kept any more, Deadline returns its last deadline. If l was
// never added, Deadline returns the zero Time.
func (w *Watchdog) Deadline(l *Lease) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.place == 0 {
		return time.Time{}
	}
	return w.start.Add(l.deadline)
}

// Close drops all leases without calling Lost, ends the contexts of all renewals, and waits for the callbacks
// that are running, except Renew. A call of Renew may return after Close, and its results are then ignored. A
// call of Renew that was about to begin may even begin after Close, with a context that has ended. No other
// callback runs after Close. A callback must not call Close, because Close waits for callbacks.
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

// arm sets the timer so that it fires in time for the next event. The caller must hold mu.
func (w *Watchdog) arm(now time.Duration) {
	if len(w.leases) == 0 || w.leases[0].event() >= w.armed {
		return
	}
	// A deadline may be so early that w.armed - now would overflow.
	w.armed = max(w.leases[0].event(), 0)
	if !w.timer.Reset(w.armed - now) { // if the timer was still active, busy already counts it
		w.busy.Add(1)
	}
}

// tick runs when the timer fires. It calls Lost for leases whose deadline has passed. For each server with
// leases that are due, it starts a flight. The timer is armed again before any callback runs, so a slow
// callback does not delay the next tick.
func (w *Watchdog) tick() {
	defer w.busy.Done()
	lost, due, now := w.collect()
	if len(due) > 0 {
		w.busy.Go(func() { // in another goroutine, so that Server and Lost do not wait for each other
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

// collect removes the leases whose deadline has passed from the heap, and returns them as lost. It also
// returns the leases that are due for a renewal, and plans the next renewal of each.
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
		// The next renewal is for the case that the present renewal does not return. The pauses grow with the
		// time since the last good reply. Otherwise a lease with hours left would cause hundreds of renewals
		// while its server hangs.
		every := l.interval()
		l.next = slot(now+max(every/2, now-l.since-2*every), every/4, w.phase)
		heap.Fix(&w.leases, 0)
	}
	w.armed = never
	w.arm(now)
	return lost, due, now
}

const (
	shortest = time.Millisecond // shortest time between renewals or retries
	longest  = never / 8        // longest time between renewals, so that sums do not overflow
)

// setInterval sets the interval of l and plans its next renewal. A lease may be short at first, for example
// the lease of a lock that was handed over. Such a lease is renewed soon, because before its first renewal,
// even a short outage could end it.
//
// The callers of setInterval, plan and planRetry must hold mu, and must fix the heap afterward.
func (w *Watchdog) setInterval(l *Lease, every, now time.Duration) {
	l.every = 0
	if every > 0 {
		l.every = min(max(every, shortest), longest)
	}
	w.plan(l, now, now, 20)
}

// plan plans the next renewal of l. It is called when l is new, has another interval or was renewed. The
// renewal is due at the start of the slot that contains the time one interval after from. If the deadline is
// less than two intervals away, the renewal is due after at most 1/part of the time until the deadline.
func (w *Watchdog) plan(l *Lease, from, now, part time.Duration) {
	l.since, l.backoff, l.next = now, 0, never
	if l.every == 0 {
		return
	}
	l.next = slot(from+l.every, l.every/4, w.phase)
	if left := l.deadline - now; left < 2*l.every {
		// The pause is at least shortest. Otherwise, if a Keeper does not move the deadline, the pauses would
		// become ever shorter.
		l.next = min(l.next, now+max(left/part, shortest))
	}
}

// interval returns the interval of l, or for a lease that is only watched, the interval for its retries.
func (l *Lease) interval() time.Duration {
	if l.every == 0 {
		return 10 * time.Second
	}
	return l.every
}

// planRetry plans a retry after a failed renewal of l. Leases that failed together are due together, because
// they are due at the start of a slot. Without slots, each lease would be due at another time, and would be
// renewed alone when the server has come back. The slots are counted from the call of New. So processes that
// have lost the server at the same moment do not retry together.
func (w *Watchdog) planRetry(l *Lease, now time.Duration) {
	every := l.interval()
	least := max(every/16, shortest)
	l.backoff = max(min(2*l.backoff, every/2), least)
	// The next retry should leave time for one more retry before the deadline.
	for l.backoff > (l.deadline-now)/2 && l.backoff >= 2*least {
		l.backoff /= 2
	}
	l.next = slot(now+l.backoff, l.backoff/2, 0)
}

// slot returns the start of the slot that contains t. Slots are width wide, and one of them starts at phase,
// which is not after t. So the result is after t-width.
func slot(t, width, phase time.Duration) time.Duration {
	return t - (t-phase)%width
}

// A leaseHeap orders leases by their next event, for package container/heap. It sets the place of each lease.
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
	(*h)[last] = nil // so that the garbage collector can free the lease
	*h = (*h)[:last]
	l.place = -1
	return l
}
