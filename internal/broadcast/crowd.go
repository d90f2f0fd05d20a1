package broadcast

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// crowd is a lock whose waiters are all notified of a release.
type crowd struct {
	mutex.Lock

	// What follows belongs to the goroutine inside the root gate, and is handed to the next, so that a hot lock stays
	// subscribed.
	news    *wakeup.Listener
	sharded bool // of news
	due     int  // how many more times others may have the lock first, after a tenure of ours that ended for their sake
}

// NewLock makes a lock and its Waiting, for a mutex.Kind.
func NewLock(*session.Session) (*mutex.Lock, mutex.Waiting, error) {
	c := &crowd{}
	return &c.Lock, c, nil
}

// Alarm wakes all that wait, for a mutex.Kind. The message is Redisson's own.
func Alarm(k *protocol.Keys, _ *protocol.Grant) (channel, message any) { return k.Channel, "0" }

// Admit has a newcomer compete for the lock, or wait behind the goroutines of its session.
func (c *crowd) Admit(a *mutex.Acquisition) (*mutex.Entry, error) {
	if c.Root.Enter() {
		c.Mu.Unlock()
		return c.compete(a)
	}
	if a.Try {
		err := a.LockedHere()
		c.Mu.Unlock()
		return nil, failure.Public(err)
	}
	w := a.NewWaiter()
	c.Root.Waiters.Push(w)
	c.Mu.Unlock()
	a.Announce()
	h, err := a.Wait(w, func(bool) {}, func(h mutex.Handoff) { c.decline(a, h) })
	switch {
	case err != nil || !h.In:
		return nil, err
	case h.Passed():
		return a.Succeed(h)
	}
	return c.compete(a)
}

// decline passes on what an acquisition was given at the instant at which it ended.
func (c *crowd) decline(a *mutex.Acquisition, h mutex.Handoff) {
	if h.Passed() {
		h.Tenure.Decline(a.Ctx, nil)
	} else {
		c.Pass()
	}
}

// Waits: no goroutine waits elsewhere than at the root gate.
func (c *crowd) Waits() bool { return false }

// Stands: no goroutine keeps a place.
func (c *crowd) Stands() *time.Time { return nil }

// Ended leaves the root gate entered, so that the next one competes after Redis was told.
func (c *crowd) Ended() {}

// Lost leaves the next step to the root gate.
func (c *crowd) Lost() {}

// Freed learns nothing: a release is published.
func (c *crowd) Freed(string, time.Time) {}

// PassFor is what WithStreak says.
func (c *crowd) PassFor() time.Duration { return c.S().Streak }

// Idle unsubscribes.
func (c *crowd) Idle() {
	if c.news != nil {
		c.news.Close()
	}
}

// restTime is the head start that a session gives, after its turn, to the sessions told
// that the lock is free: longer than their requests take in one data center.
const restTime = time.Millisecond

// restMemory is how long a session remembers to give it while none of its goroutines waits.
const restMemory = 10 * restTime

// few is the largest number of clients that may all ask at once after a release, this session included. With no more
// than that, a session whose turn was a single hold does not let others go first: beside one with long turns its share
// would be small.
const few = 2

// Released lets the next goroutine compete. The reply says how many clients were notified of the release.
func (c *crowd) Released(t *mutex.Tenure, o wire.Outcome) {
	_, heard, _ := strings.Cut(o.Reply, " ")
	n, _ := strconv.Atoi(heard)
	c.due = 0
	if t.PassedOn() || t.Contested() && n > few {
		c.due = n
	}
	if c.due > 0 { // also for a goroutine that comes back in a moment
		c.Keep()
		time.AfterFunc(restMemory, c.Drop)
	}
	c.Pass()
}

// letOthersFirst takes the messages of the lock, so that what comes from here on is news. Where it is the turn of others, it
// sleeps until they have had it, or seem not to want it. Otherwise a session that comes back at once would win each time: its
// request leaves before the message of its release has reached the others.
func (c *crowd) letOthersFirst(a *mutex.Acquisition) error {
	for c.news != nil {
		heard, _ := c.news.Take()
		c.due -= len(heard)
		if c.due <= 0 || a.Try {
			break
		}
		if news, err := c.sleep(a, restTime); err != nil || !news {
			return err
		}
		a.Advance(mutex.Contested)
	}
	return nil
}

// sleep waits for news of the lock, for d at most. Its error says that the wait is over.
func (c *crowd) sleep(a *mutex.Acquisition, d time.Duration) (heard bool, err error) {
	var news <-chan struct{}
	if c.news != nil {
		news = c.news.Ready
	}
	return c.await(a, d, news)
}

// await is sleep until ready, which may be nil.
func (c *crowd) await(a *mutex.Acquisition, d time.Duration, ready <-chan struct{}) (heard bool, err error) {
	heard, ended := a.Sleep(d, ready)
	if ended {
		err = a.WhyOver(false)
	}
	return heard, err
}
