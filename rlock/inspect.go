package rlock

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/operate"
)

// State is what Redis knows of a lock at one instant.
type State struct {
	Name      string
	Held      bool
	Owner     string        // session id and number of the acquisition, or another library's owner field; of a RedLock, as Session
	Session   string        // id of the holder's session; of a RedLock, of its quorum
	Host      string        // where the holder's session runs
	PID       int           // its process id
	Label     string        // what WithLabel says of it
	Count     int           // hold count
	Remaining time.Duration // of the lease, if it is not renewed
	Token     int64         // of the holder (if its session handed the lock over in memory, of the first one that had it; 0 if not known, as of another library's); of the last one, if the lock is free and was held a minute ago
	Queue     []Waiter      // the waiters in Redis' queue, in order; not of a RedLock, and none of package redisson
	Servers   int           // of a RedLock, how many of its servers have this holder; 0 of any other lock
	Lingers   bool          // the holder's session may keep it while none of its goroutines has it ([WithLinger])
}

// Since is about when the holder's session got the lock, by the server's clock: a token is that time. It is
// later than that if the clock was set back before. The session may have handed the lock from goroutine to
// goroutine in memory since then. It is zero if the lock is free, or its token is not known.
func (s State) Since() time.Time {
	if !s.Held || s.Token == 0 {
		return time.Time{}
	}
	return time.UnixMicro(s.Token)
}

// Waiter is one acquisition that waits in Redis' queue. For a reentrant lock there is at most one of each
// session: others of that session wait behind it, in memory. For a fair lock, those of one session that asked
// together wait as one. They have the same Owner and Age, and one that gives up may be listed for as long as
// others of them wait.
type Waiter struct {
	Owner   string        // session id and number of the acquisition
	Session string        // id of its session
	Host    string        // where that runs
	PID     int           // its process id
	Label   string        // what WithLabel says of it
	Age     time.Duration // since it asked, or the first of those that wait with it did
}

// Inspect asks Redis for the holder and the waiters of the lock. It changes nothing, and blocks for one
// request, not longer than ctx.
func (m *Mutex) Inspect(ctx context.Context) (State, error) {
	s, err := operate.Inspect(ctx, m.unwrap())
	st := State{Name: s.Name, Held: s.Held, Owner: s.Owner, Session: s.Session, Host: s.Host, PID: s.PID, Label: s.Label,
		Count: s.Count, Remaining: s.Remaining, Token: s.Token, Servers: s.Servers, Lingers: s.Lingers}
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
	return operate.ForceUnlock(ctx, m.unwrap())
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
	return operate.ForceUnlockToken(ctx, m.unwrap(), token)
}
