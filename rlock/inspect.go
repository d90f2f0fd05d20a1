package rlock

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/engine"
)

// State is what Redis knows of a lock of any kind at one instant.
type State struct {
	Name    string
	Held    bool
	Holder           // the first of Holders. Of a free lock, Token is the last one, for 15 s or more
	Holders []Holder // one, but of readers and of permits. The one whose lease ends first is the first
	Queue   []Waiter // in order; not of a RedLock, and none of package redisson
	Limit   int      // of a semaphore, how many permits there are; 0 if it was not used lately
}

// Holder is one acquisition that holds a lock.
type Holder struct {
	// Owner is the id of its session and the number of the acquisition, or another library's owner field. Of
	// a RedLock, it is its quorum's id.
	Owner   string
	Session string // id of its session; of a RedLock, of its quorum
	Host    string // where that runs
	PID     int    // process id of the session
	Label   string // what WithLabel says of it
	Note    string // the note of the call that Redis granted the lock to ([WithNote])
	// Protocol and Library are the versions of the protocol and of the library with which its program was
	// built. Library is a tag, the hash of a commit, or "devel". They are 0 and "" of sessions of before they
	// were there, and of another library's.
	Protocol int
	Library  string
	Count    int  // hold count of a lock; 0 of a read-write lock and of permits
	Shared   bool // it holds a read-write lock to read: others may, too
	Permits  int  // of a semaphore, how many it has; 0 of a lock
	// Token is that of the first one that had the lock, if its session handed it over in memory. It is 0 if
	// it is not known, as of another library's.
	Token     int64
	Remaining time.Duration // of the lease, if it is not renewed
	Lingers   bool          // its session may keep it while none of its goroutines has it ([WithLinger])
	Unlocked  bool          // its hold has ended, and the lock only stays taken for Remaining ([HoldAtLeast])
	Servers   int           // of a RedLock, how many of its servers have this holder; 0 of any other lock
}

// Since is about when the holder's session got the lock, by the server's clock: a token is that time. It is
// later than that if the clock was set back before. The session may have handed the lock from goroutine to
// goroutine in memory since then. It is zero if the lock is free, or the token is not known.
func (h Holder) Since() time.Time {
	if h.Owner == "" || h.Token == 0 {
		return time.Time{}
	}
	return time.UnixMicro(h.Token)
}

// Used is how many permits of a semaphore are held. That is more than Limit where that was reduced.
func (s State) Used() (n int) {
	for _, h := range s.Holders {
		n += h.Permits
	}
	return n
}

// Available is how many permits of a semaphore are free: negative where the limit was reduced below what is
// held.
func (s State) Available() int { return s.Limit - s.Used() }

// Waiter is one acquisition that waits in Redis' queue. There is at most one of each session: others of that
// session wait behind it, in memory. Of a read-write lock there is one to read and one to write, of a
// semaphore one for each number of permits. For a fair lock, those of one session that asked together wait as
// one. They have the same Owner and Age, and one that gives up may be listed for as long as others of them
// wait.
type Waiter struct {
	Owner    string        // session id and number of the acquisition
	Session  string        // id of its session
	Host     string        // where that runs
	PID      int           // process id of the session
	Label    string        // what WithLabel says of it
	Note     string        // the note of the call that its request was made for ([WithNote])
	Protocol int           // as of a Holder
	Library  string        // as of a Holder
	Shared   bool          // it waits to read
	Permits  int           // of a semaphore, how many it wants; 0 of a lock
	Age      time.Duration // since it asked, or the first of those that wait with it did
}

// Inspect asks Redis for the holder and the waiters of the lock. It changes nothing, and blocks for one
// request, not longer than ctx.
func (m *Mutex) Inspect(ctx context.Context) (State, error) {
	s, err := (*mutex)(m).Inspect(ctx)
	st := State{Name: s.Name, Held: s.Held, Holder: Holder(s.Holder), Limit: s.Limit}
	for _, h := range s.Holders {
		st.Holders = append(st.Holders, Holder(h))
	}
	for _, w := range s.Queue {
		st.Queue = append(st.Queue, Waiter(w))
	}
	return st, err
}

// ForceUnlock frees the lock, whichever owner holds it, and reports whether it was held. It
// is for operators, because the holder goes on for a while without the lock. Its next request
// or renewal, after a third of its lease at most, tells it that the lock is lost. A hold with
// [WithLease] is not renewed, so it may go on until its lease ends.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	n, err := (*mutex)(m).Force(ctx, engine.ForceExclusive)
	return n > 0, err
}

// ForceUnlockToken is [Mutex.ForceUnlock] of the one holder that [Mutex.Inspect] has shown with this token.
// If another owner holds the lock by now, or the lock is free, it changes nothing and returns false. So an
// operator who has looked, and thought about it, does not free the lock of the next holder. If the holder's
// session has handed the lock from goroutine to goroutine in memory, it is the one holder that Inspect shows,
// and the token is that of the first of them.
//
// It blocks for one request, of a RedLock for two, not longer than ctx. A token that is not above 0 is an
// error: Inspect says 0 where it is not known, as of a JVM's hold, which only ForceUnlock frees.
func (m *Mutex) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	return (*mutex)(m).ForceToken(ctx, token)
}
