package mutex

import (
	"context"
	"sync"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// Lock is what this process knows of one lock while it is held, waited for or released here.
type Lock struct {
	// What follows never changes.
	Keys  *protocol.Keys
	Kind  *Kind
	table *table

	refs int // guarded by table.mu

	// Mu guards the following, and the changing fields of this lock's tenures and entries. Under it
	// may be taken the mutexes of a session's inbox, of the table and of the session, in this order, and
	// those of Watchdog and Hub, which are leaves. No two Mu are held at once.
	Mu     sync.Mutex
	Root   Gate              // for those that compete, or hold
	tenure *Tenure           // the live one
	seen   *failure.Sighting // of a holder other than the live tenure; nil if no goroutine waited
	unlock handover.Pending  // releases under way
	others bool              // other sessions want the lock, as far as is known

	ear ear // belongs to the goroutine inside the root gate
}

// S is the session.
func (l *Lock) S() *session.Session { return l.table.s }

// Silent: requests about the lock need goroutines of their own.
func (l *Lock) Silent(ctx context.Context) bool { return l.S().Link.Silent(ctx, l.Keys.Lock()) }

// Tenure is the live one; nil if there is none. Mu held.
func (l *Lock) Tenure() *Tenure { return l.tenure }

// Fail puts the lock's name before an error.
func (l *Lock) Fail(err error) error { return failure.Named(l.Keys.Name, err) }

// Observe tells the session's observer of something that happened to the lock.
func (l *Lock) Observe(ctx context.Context, e session.Event) {
	l.S().Observe(ctx, l.Kind.Letter, l.Keys.Name, e)
}

// Pass lets the next one compete.
func (l *Lock) Pass() {
	l.Mu.Lock()
	l.Root.Leave()
	l.Mu.Unlock()
}
