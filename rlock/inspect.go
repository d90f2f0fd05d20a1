package rlock

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/engine"
)

// A State is the data that Redis has of a lock of any kind at one moment.
type State struct {
	Name string
	Held bool
	// Holder is the first of Holders. If the lock is free, the only field of Holder that is set is Token. It
	// has the last token, which Redis keeps for at least 15 s.
	Holder
	Holders []Holder // several if readers or holders of permits share the lock; sorted by Remaining
	Queue   []Waiter // in order; empty for a RedLock, and for locks of package redisson
	Limit   int      // number of permits of a semaphore; 0 for other locks, or if Redis does not know it
}

// A Holder is one acquisition that holds a lock.
type Holder struct {
	// Owner is the id of the session and the number of the acquisition, or the owner field of another
	// library. For a RedLock, Owner is the id of the holder's Quorum, which is the common beginning of the
	// ids of the holder's sessions. A ~ follows if only [HoldAtLeast] keeps the lock taken.
	Owner   string
	Session string // id of the session; for a RedLock, id of the holder's Quorum
	Host    string // host name of the process
	PID     int    // process id
	Label   string // label of the session ([WithLabel])
	Note    string // note of the call whose request got the lock ([WithNote])
	// Protocol and Library are the versions of the protocol and of the library with which the holder's
	// program was built. Library is a tag, the hash of a commit, or "devel". Protocol is 0 and Library is ""
	// for sessions of older versions and for other libraries, which do not store them.
	Protocol int
	Library  string
	Count    int  // hold count of a lock; 0 for a read-write lock and for permits
	Shared   bool // the holder has a read-write lock for reading, and others may read at the same time
	Permits  int  // number of permits of a semaphore that the holder has; 0 for a lock
	// Token is the fencing token that Redis granted. If the session has passed a lock on in memory since
	// then, the goroutine that has the lock now has a higher token. A permit that is passed on keeps its
	// token. Token is 0 if the token is not known, for example for holders of other libraries.
	Token     int64
	Remaining time.Duration // time until the lease ends, unless the lease is renewed
	Lingers   bool          // the session may keep the lock while no goroutine has it ([WithLinger])
	Unlocked  bool          // the hold has ended, and the lock stays taken for Remaining ([HoldAtLeast])
	Servers   int           // number of servers of a RedLock that have this holder; 0 for any other lock
}

// Since returns the approximate time at which the session of the holder got the lock, by the clock of the
// server. After that time, the session may have passed the lock on from goroutine to goroutine in memory. The
// result is derived from the token. If the server's clock has been set back, tokens can be ahead of the
// clock, and then the result is too late. Since returns the zero time if the lock is free, or if the token is
// not known.
func (h Holder) Since() time.Time {
	if h.Owner == "" || h.Token == 0 {
		return time.Time{}
	}
	return time.UnixMicro(h.Token)
}

// Used returns the number of permits of a semaphore that are held. Used exceeds Limit if the limit was
// reduced below the number of permits that are held.
func (s State) Used() (n int) {
	for _, h := range s.Holders {
		n += h.Permits
	}
	return n
}

// Available returns the number of free permits of a semaphore. It is negative if the limit was reduced below
// the number of permits that are held.
func (s State) Available() int { return s.Limit - s.Used() }

// A Waiter is one place in the queue in Redis. In the queue of a reentrant lock, each session has at most one
// place, and all of its waiting goroutines share that place. For a read-write lock, a session usually has at
// most one place to read and one to write. For a semaphore, it usually has at most one place for each number
// of permits. For a fair lock, a session can have several places. Goroutines that share a place of a fair
// lock are listed one by one, with the same Owner and Age. A goroutine that has given up may be listed for as
// long as other goroutines of its place wait.
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
	Permits  int           // number of permits of a semaphore that the waiter wants; 0 for a lock
	Age      time.Duration // time since the waiter took its place
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

// ForceUnlock frees the lock from any holder, and reports whether the lock was held. It is for operators,
// because the holder continues for a while without the lock. The holder notices the loss at its next request
// or renewal, which comes after at most a third of its lease. A hold with [WithLease] is not renewed, so its
// holder may continue until the lease ends. After an error, the lock may have been freed all the same,
// because the reply may have been lost.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	n, err := (*mutex)(m).Force(ctx, engine.ForceExclusive)
	return n > 0, err
}

// ForceUnlockToken is like [Mutex.ForceUnlock], but frees the lock only if it is still held by the holder
// that [Mutex.Inspect] has returned with this token. Otherwise it changes nothing and returns false. So an
// operator who needs time to decide does not free the lock of the next holder. After the session of the
// holder has passed the lock on in memory, Inspect still returns the token that Redis granted.
// ForceUnlockToken then takes the lock from the goroutine that has it now.
//
// ForceUnlockToken blocks for one request, at most until ctx ends. If token is 0 or less, it returns an
// error. Inspect returns the token 0 if the token is not known, for example for a holder on a JVM. Only
// ForceUnlock can free the lock of such a holder.
func (m *Mutex) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	return (*mutex)(m).ForceToken(ctx, token)
}
