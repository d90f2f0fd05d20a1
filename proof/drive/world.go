// Package drive explores the code that ships. It runs the sessions of two or three processes, with all that
// is behind them, against the library's own Lua scripts, in the fake time of testing/synctest. At each step
// one thing happens: the server runs a request, a reply or a message arrives or is lost, a goroutine calls
// Lock or Unlock, a context ends, or time passes. The explorer tries every order of these steps, up to a
// bound.
//
// Begin with World in this file. A run (run.go) lives through one order of steps. explorer (search.go) chooses
// the orders, and skips a run when it comes into a state that was seen before (state.go). The network and the
// server are in server.go, subscriptions in subscription.go, goroutines in actor.go, and the promises that are
// checked in check.go.
//
// It is for tests alone. docs/proof.md says what was explored.
package drive

import (
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// A World has a few sessions, whose goroutines use one lock.
type World struct {
	Name  string
	About string
	Small bool // explored with all tests; others take minutes

	Options []rlock.SessionOption // of each session
	Cast    []string              // for each session, its goroutines: see Role
	Faults  Faults

	// Prompt has each reply arrive as soon as the server has run its request. Otherwise anything can happen in
	// between.
	Prompt bool

	// Detours bounds how many steps of an order are not the first of those that are possible. Faults are
	// detours, too. 0: there is no bound.
	Detours int

	kind kind
}

// Faults bounds how often each thing happens that delays, loses or ends something.
type Faults struct {
	Cuts     int // a connection breaks while it has a request, before or after the server has run that
	Late     int // a request whose connection broke is run later
	Losses   int // a message does not arrive
	Breaks   int // a subscription breaks, and what was published for it does not arrive
	Cancels  int // the context of a call ends while the call waits
	Cutoffs  int // a session cannot reach the server until all others are done
	Waits    int // time passes until something happens by itself, although something else could happen first
	Closures int // a session is closed while its goroutines use the lock
}

// kind is one kind of lock.
type kind struct {
	name   string
	limit  int  // how much of it there is
	fair   bool // only the queue in Redis says whose turn it is
	fences bool // its tokens grow
	locker func(s *rlock.Session, r role) rlock.Locker
}

// name is that of the lock.
const name = "x"

var (
	reentrant = kind{name: "rlock", limit: 1, fences: true,
		locker: func(s *rlock.Session, _ role) rlock.Locker { return rlock.New(s, name) }}
	fair = kind{name: "fairlock", limit: 1, fair: true, fences: true,
		locker: func(s *rlock.Session, _ role) rlock.Locker { return fairlock.New(s, name) }}
	readWrite = kind{name: "rwlock", limit: 1000, fences: true,
		locker: func(s *rlock.Session, r role) rlock.Locker {
			if m := rwlock.New(s, name); !r.reads {
				return m
			} else {
				return m.RLocker()
			}
		}}
	permits = kind{name: "semaphore", limit: 2,
		locker: func(s *rlock.Session, r role) rlock.Locker { return semaphore.New(s, name, 2).Locker(r.takes) }}
)

// role is one use of the lock by a goroutine, as a letter of a Cast says.
type role struct {
	letter byte
	tries  bool // calls TryLock
	nests  bool // locks again below its hold, and unlocks that first
	reads  bool
	// reduces: a writer that locks for reading below its hold, and unlocks the outer hold first.
	reduces bool
	takes   int           // of the limit; 0: all of it
	stays   time.Duration // HoldAtLeast
}

// roles are the letters of a Cast. Each goroutine is a word, whose letters are its uses of the lock, one
// after another: "LT R" is a goroutine that calls Lock and then TryLock, and one that reads.
var roles = map[byte]role{
	'L': {},
	'T': {tries: true},
	'N': {nests: true},
	'D': {reduces: true},
	'R': {reads: true, takes: 1},
	'r': {reads: true, takes: 1, tries: true},
	'1': {takes: 1},
	'2': {takes: 2},
	't': {takes: 1, tries: true},
	'S': {stays: 500 * time.Millisecond},
}

// linger has sessions keep what no goroutine has.
var linger = []rlock.SessionOption{rlock.WithLinger(100 * time.Millisecond)}

// Worlds are all there are.
func Worlds() []World {
	return []World{
		{Name: "rlock", kind: reentrant, Cast: []string{"L", "L"}},
		{Name: "rlock-session", kind: reentrant, Cast: []string{"L L", "L"}, Detours: 4},
		{Name: "rlock-cut", kind: reentrant, Cast: []string{"L", "L"},
			Faults: Faults{Cuts: 1, Late: 1, Cancels: 1}, Detours: 4},
		{Name: "rlock-cancel", kind: reentrant, Cast: []string{"L L", "L"}, Faults: Faults{Cancels: 2}, Detours: 3},
		{Name: "rlock-messages", kind: reentrant, Cast: []string{"L L", "L"},
			Faults: Faults{Losses: 1, Breaks: 1}, Detours: 3},
		{Name: "rlock-away", kind: reentrant, Cast: []string{"N L", "L"}, Faults: Faults{Cutoffs: 1}, Detours: 3},
		{Name: "rlock-close", kind: reentrant, Cast: []string{"L L", "L"}, Faults: Faults{Closures: 1}, Detours: 3},
		{Name: "rlock-time", kind: reentrant, Cast: []string{"L", "L"}, Faults: Faults{Waits: 2, Cuts: 1}, Detours: 3},
		{Name: "rlock-try", kind: reentrant, Cast: []string{"LT T", "T"}, Detours: 3},
		{Name: "rlock-nest", kind: reentrant, Cast: []string{"N L", "N"}, Detours: 3},
		{Name: "rlock-linger", kind: reentrant, Cast: []string{"LL L", "L"}, Options: linger,
			Faults: Faults{Losses: 1}, Detours: 3},
		{Name: "rlock-stays", kind: reentrant, Cast: []string{"S L", "L"}, Detours: 3},

		{Name: "fairlock-session", kind: fair, Cast: []string{"L L", "L"}, Detours: 4},
		{Name: "fairlock-three", kind: fair, Cast: []string{"L", "L", "L"}, Detours: 3},
		{Name: "fairlock-cut", kind: fair, Cast: []string{"L", "L"},
			Faults: Faults{Cuts: 1, Late: 1, Cancels: 1}, Detours: 4},
		{Name: "fairlock-cancel", kind: fair, Cast: []string{"L L", "L"}, Faults: Faults{Cancels: 2}, Detours: 3},
		{Name: "fairlock-messages", kind: fair, Cast: []string{"L L", "L"},
			Faults: Faults{Losses: 1, Breaks: 1}, Detours: 3},
		{Name: "fairlock-away", kind: fair, Cast: []string{"N L", "L"}, Faults: Faults{Cutoffs: 1}, Detours: 3},
		{Name: "fairlock-close", kind: fair, Cast: []string{"L L", "L"}, Faults: Faults{Closures: 1}, Detours: 3},
		{Name: "fairlock-try", kind: fair, Cast: []string{"T L", "L"}, Detours: 3},
		{Name: "fairlock-stays", kind: fair, Cast: []string{"S L", "L"}, Detours: 3},

		{Name: "rwlock-session", kind: readWrite, Cast: []string{"R R", "L"}, Detours: 4},
		{Name: "rwlock-mixed", kind: readWrite, Cast: []string{"R L", "R"}, Detours: 4},
		{Name: "rwlock-writers", kind: readWrite, Cast: []string{"L L", "L"}, Detours: 3},
		{Name: "rwlock-cut", kind: readWrite, Cast: []string{"R R", "L"},
			Faults: Faults{Cuts: 1, Late: 1, Cancels: 1}, Detours: 3},
		{Name: "rwlock-messages", kind: readWrite, Cast: []string{"R L", "R"},
			Faults: Faults{Losses: 1, Breaks: 1}, Detours: 3},
		{Name: "rwlock-away", kind: readWrite, Cast: []string{"D R", "L"}, Faults: Faults{Cutoffs: 1}, Detours: 3},
		{Name: "rwlock-reduce", kind: readWrite, Cast: []string{"D R", "R"}, Detours: 3},
		{Name: "rwlock-try", kind: readWrite, Cast: []string{"R r", "L"}, Detours: 3},

		{Name: "semaphore", kind: permits, Cast: []string{"1 1", "2"}, Detours: 3},
		{Name: "semaphore-more", kind: permits, Cast: []string{"1 1", "1 1"}, Detours: 3},
		{Name: "semaphore-cut", kind: permits, Cast: []string{"1", "2"},
			Faults: Faults{Cuts: 1, Late: 1, Cancels: 1}, Detours: 4},
		{Name: "semaphore-cancel", kind: permits, Cast: []string{"1 1", "2"}, Faults: Faults{Cancels: 2}, Detours: 3},
		{Name: "semaphore-messages", kind: permits, Cast: []string{"1 1", "2"},
			Faults: Faults{Losses: 1, Breaks: 1}, Detours: 3},
		{Name: "semaphore-away", kind: permits, Cast: []string{"1 1", "2"}, Faults: Faults{Cutoffs: 1}, Detours: 3},
		{Name: "semaphore-close", kind: permits, Cast: []string{"1 1", "2"}, Faults: Faults{Closures: 1}, Detours: 3},
		{Name: "semaphore-try", kind: permits, Cast: []string{"1 t", "t 2"}, Detours: 3},
		{Name: "semaphore-linger", kind: permits, Cast: []string{"11 1", "2"}, Options: linger,
			Faults: Faults{Losses: 1}, Detours: 3},
	}
}
