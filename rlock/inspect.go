package rlock

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/engine"
)

// State is the data that Redis has of a lock of any kind at one moment.
type State struct {
	Name    string
	Held    bool
	Holder           // the first of Holders. If the lock is free, Token is the last token, for 15 s or more
	Holders []Holder // several of readers and of permits. The holder whose lease ends first is the first
	Queue   []Waiter // in order; empty for a RedLock, and for locks of package redisson
	Limit   int      // number of permits of a semaphore; 0 if it was not used lately
}

// Holder is one acquisition that holds a lock.
type Holder struct {
	// Owner is the id of the session and the number of the acquisition, or the owner field of another
	// library. For a RedLock, it is the id of its quorum.
	Owner   string
	Session string // id of the session; for a RedLock, of its quorum
	Host    string // host name of the process
	PID     int    // process id
	Label   string // label of the session ([WithLabel])
	Note    string // note of the call to which Redis granted the lock ([WithNote])
	// Protocol and Library are the versions of the protocol and of the library with which the program was
	// built. Library is a tag, the hash of a commit, or "devel". They are 0 and "" for sessions of older
	// versions, which do not store them, and for other libraries.
	Protocol int
	Library  string
	Count    int  // hold count of a lock; 0 for a read-write lock and for permits
	Shared   bool // the holder reads under a read-write lock, beside which others may read, too
	Permits  int  // number of permits of a semaphore that it has; 0 for a lock
	// Token is the fencing token that Redis granted. If the session has passed the lock on in memory since,
	// its present goroutine has a higher one. Token is 0 if it is not known, as for other libraries.
	Token     int64
	Remaining time.Duration // until the lease ends, unless it is renewed
	Lingers   bool          // the session may keep the lock while no goroutine has it ([WithLinger])
	Unlocked  bool          // the hold has ended, and the lock stays taken for Remaining ([HoldAtLeast])
	Servers   int           // number of servers of a RedLock that have this holder; 0 for any other lock
}

// Since returns about when the session of the holder got the lock, by the clock of the server, because a
// token is that time. The result is too late if the clock had been set back before. The session may have
// passed the lock on from goroutine to goroutine in memory since then. Since returns the zero time if the
// lock is free, or if the token is not known.
func (h Holder) Since() time.Time {
	if h.Owner == "" || h.Token == 0 {
		return time.Time{}
	}
	return time.UnixMicro(h.Token)
}

// Used returns the number of permits of a semaphore that are held. It exceeds Limit if the limit was reduced
// below that number.
func (s State) Used() (n int) {
	for _, h := range s.Holders {
		n += h.Permits
	}
	return n
}

// Available returns the number of free permits of a semaphore. It is negative if the limit was reduced below
// the number of permits that are held.
func (s State) Available() int { return s.Limit - s.Used() }

// Waiter is one place in the queue in Redis. Each session has at most one place, and its other goroutines
// wait behind that in memory. For a read-write lock, a session has at most one place to read and one to
// write. For a semaphore, it has at most one place for each number of permits. For a fair lock, goroutines
// of one session that share a place are listed one by one, with the same Owner and Age. One of them that has
// given up may be listed for as long as others wait.
type Waiter struct {
	Owner    string        // session id and number of the acquisition
	Session  string        // id of the session
	Host     string        // host name of the process
	PID      int           // process id
	Label    string        // label of the session ([WithLabel])
	Note     string        // note of the call for which the first request was sent ([WithNote])
	Protocol int           // see Holder
	Library  string        // see Holder
	Shared   bool          // the waiter wants to read
	Permits  int           // number of permits of a semaphore that it wants; 0 for a lock
	Age      time.Duration // since the place was taken
}

// Inspect returns the holder and the waiters of the lock. It sends one request, which changes nothing, and
// blocks for the reply, at most until ctx ends.
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

// ForceUnlock frees the lock, whoever holds it, and reports whether it was held. It is for operators,
// because the holder continues for a while without the lock. The holder notices the loss at its next request
// or renewal, which comes after at most a third of its lease. A hold with [WithLease] is not renewed, so its
// holder may continue until the lease ends.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	n, err := (*mutex)(m).Force(ctx, engine.ForceExclusive)
	return n > 0, err
}

// ForceUnlockToken is [Mutex.ForceUnlock] for the holder that [Mutex.Inspect] has returned with this token.
// If another owner holds the lock meanwhile, or the lock is free, it changes nothing and returns false. So
// an operator who has looked, and thought about it, does not free the lock of the next holder. If the
// session of the holder has passed the lock on in memory, Inspect still returns the token that Redis
// granted, and ForceUnlockToken takes the lock from whichever goroutine has it.
//
// It blocks for one request, at most until ctx ends. A token of 0 or less is an error. Inspect returns 0 if
// the token is not known, for example for a holder on a JVM, which only ForceUnlock can free.
func (m *Mutex) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	return (*mutex)(m).ForceToken(ctx, token)
}
