// Package explore tries the possible orders of events around one lock. It runs the sessions of two or three
// processes in the fake time of testing/synctest. The sessions run the library's own engine, and the server
// runs the library's own Lua scripts. At each step, one thing happens: the server runs a request, a reply or
// a message arrives or is lost, a goroutine calls Lock or Unlock, a context ends, or time passes. The
// explorer tries every order of these steps within a bound, see World.Detours.
//
// Begin with World in this file. A run (run.go) takes the steps of one order. The explorer (search.go)
// chooses the orders. It usually ends a run that reaches a state which was visited before (state.go). The
// server and the network are in server.go, subscriptions in subscription.go, goroutines in actor.go, and the
// steps of an operator in operator.go. The promises that each run must keep are in check.go. The
// specification of the scripts is in model.go.
//
// The package is for tests alone. docs/proof.md describes the method and its results.
package explore

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
	Small bool // the main tests explore the world; the nightly tests explore all worlds

	// Cast has one string for each session. Each word of the string is a goroutine, and each letter of the
	// word is one use of the lock by this goroutine, see roles. For example, the session "LT R" has a
	// goroutine that calls Lock and later TryLock, and a goroutine that locks for reading.
	Cast    []string
	Options []rlock.SessionOption // options of each session
	Lingers bool                  // each session may keep an unused grant for 100 ms, by WithLinger
	Faults  Faults

	// Detours is the largest number of detours in an order. In each state, the explorer prefers one step:
	// replies arrive before further requests run, and nothing goes wrong. Any other step is a detour. If the
	// detour is no fault, the steps that the explorer would have preferred come after all other steps that
	// are no faults. So one detour makes a request late, however much happens before the server runs the
	// request. Zero means that there is no bound.
	Detours int

	kind         kind
	withoutModel bool // the effects of scripts are not compared with the model, see model.go
}

// Faults has the largest number of faults of each sort in one run.
type Faults struct {
	Cuts     int // a connection breaks before or after the server has run a request, and the reply is lost
	Late     int // the server may run a request after its sender has got an error
	Losses   int // a message does not arrive
	Breaks   int // a subscription ends, and its messages are lost
	Cancels  int // the context of a waiting call is canceled
	Cutoffs  int // a session cannot reach the server until the goroutines of all other sessions are done
	Waits    int // time passes until something happens by itself, although another step was possible
	Closures int // a session is closed while its goroutines use the lock

	Forces    int // an operator frees the lock
	Deletions int // an operator deletes one key of the lock
	Limits    int // an operator sets another number of permits
	ClockSets int // an operator sets the clock of the server back
}

// A kind has the properties of one kind of lock.
type kind struct {
	limit  int  // number of permits; a lock with one holder has 1, and a reader takes 1
	fair   bool // the lock serves goroutines of all sessions first come, first served
	fences bool // the tokens grow from holder to holder
	locker func(s *rlock.Session, r role) rlock.Locker
}

// name is the name of the lock.
const name = "x"

var (
	reentrant = kind{limit: 1, fences: true,
		locker: func(s *rlock.Session, _ role) rlock.Locker { return rlock.New(s, name) }}
	fair = kind{limit: 1, fair: true, fences: true,
		locker: func(s *rlock.Session, _ role) rlock.Locker { return fairlock.New(s, name) }}
	readWrite = kind{limit: 1000, fences: true,
		locker: func(s *rlock.Session, r role) rlock.Locker {
			m := rwlock.New(s, name)
			if r.reads {
				return m.RLocker()
			}
			return m
		}}
	permits = kind{limit: 2,
		locker: func(s *rlock.Session, r role) rlock.Locker {
			return semaphore.New(s, name, 2).Locker(r.takes)
		}}
)

// A role is one use of the lock by a goroutine.
type role struct {
	letter  byte
	tries   bool // the goroutine calls TryLock
	nests   bool // the goroutine takes a nested hold, and unlocks the nested hold first
	reduces bool // the goroutine takes a nested hold for reading, and unlocks the outer hold first
	reads   bool
	takes   int           // number of permits; 0: all
	lease   time.Duration // the fixed lease; 0: the lease is renewed
	stays   time.Duration // HoldAtLeast; 0: without it
}

// roles has the role for each letter of a Cast.
var roles = map[byte]role{
	'L': {},
	'T': {tries: true},
	'N': {nests: true},
	'D': {reduces: true},
	'F': {lease: 10 * time.Second},
	'S': {stays: 500 * time.Millisecond},
	'R': {reads: true, takes: 1},
	'r': {reads: true, takes: 1, tries: true},
	'1': {takes: 1},
	'2': {takes: 2},
	't': {takes: 1, tries: true},
}

// Worlds returns all worlds.
func Worlds() []World {
	lossy := Faults{Losses: 1, Breaks: 1}
	cut := Faults{Cuts: 1, Late: 1, Cancels: 1}
	patient := []rlock.SessionOption{rlock.WithWaiterTimeout(30 * time.Second)}
	return []World{
		{Name: "rlock", Small: true, kind: reentrant, Cast: []string{"L", "L"}},
		{Name: "rlock-session", Small: true, kind: reentrant, Cast: []string{"L L", "L"}, Detours: 2},
		{Name: "rlock-cut", Small: true, kind: reentrant, Cast: []string{"L", "L"}, Faults: cut, Detours: 2},
		{Name: "rlock-cancel", Small: true, kind: reentrant, Cast: []string{"L L", "L"},
			Faults: Faults{Cancels: 2}, Detours: 2},
		{Name: "rlock-messages", Small: true, kind: reentrant, Cast: []string{"L L", "L"}, Faults: lossy,
			Detours: 2},
		{Name: "rlock-away", Small: true, kind: reentrant, Cast: []string{"NL L", "L"},
			Faults: Faults{Cutoffs: 1}, Detours: 2},
		{Name: "rlock-close", Small: true, kind: reentrant, Cast: []string{"L L", "L"},
			Faults: Faults{Closures: 1}, Detours: 2},
		{Name: "rlock-time", kind: reentrant, Cast: []string{"L", "L"}, Faults: Faults{Waits: 2, Cuts: 1},
			Detours: 2},
		{Name: "rlock-try", Small: true, kind: reentrant, Cast: []string{"LT T", "T"}, Detours: 2},
		{Name: "rlock-nest", Small: true, kind: reentrant, Cast: []string{"N L", "N"}, Detours: 2},
		{Name: "rlock-lease", Small: true, kind: reentrant, Cast: []string{"F L", "F"}, Detours: 2},
		{Name: "rlock-linger", Small: true, kind: reentrant, Cast: []string{"LL L", "L"}, Lingers: true,
			Faults: Faults{Losses: 1}, Detours: 2},
		{Name: "rlock-force", Small: true, kind: reentrant, Cast: []string{"N L", "L"},
			Faults: Faults{Forces: 1, Waits: 1}, Detours: 2},
		{Name: "rlock-block", Small: true, kind: reentrant, Cast: []string{"LL L", "L"},
			Faults: Faults{Forces: 1}, Detours: 2},
		{Name: "rlock-delete", Small: true, kind: reentrant, Cast: []string{"L L", "L"},
			Faults: Faults{Deletions: 1, Waits: 1}, Detours: 2},
		{Name: "rlock-clock", Small: true, kind: reentrant, Cast: []string{"L L", "L"},
			Faults: Faults{ClockSets: 1, Waits: 1, Cuts: 1, Late: 1}, Detours: 2},
		{Name: "rlock-stays", Small: true, kind: reentrant, Cast: []string{"S L", "L"}, Detours: 2},

		{Name: "fairlock-session", Small: true, kind: fair, Cast: []string{"L L", "L"}, Detours: 2},
		{Name: "fairlock-three", Small: true, kind: fair, Cast: []string{"L", "L", "L"}, Detours: 2},
		{Name: "fairlock-cut", kind: fair, Cast: []string{"L L", "L"}, Faults: cut, Detours: 2},
		{Name: "fairlock-cancel", Small: true, kind: fair, Cast: []string{"L L", "L"},
			Faults: Faults{Cancels: 2}, Detours: 2},
		{Name: "fairlock-leave", Small: true, kind: fair, Cast: []string{"L", "L", "L"}, Options: patient,
			Faults: Faults{Cancels: 1}, Detours: 2},
		{Name: "fairlock-messages", Small: true, kind: fair, Cast: []string{"L L", "L"}, Faults: lossy,
			Detours: 2},
		{Name: "fairlock-away", kind: fair, Cast: []string{"N L", "L"}, Faults: Faults{Cutoffs: 1},
			Detours: 2},
		{Name: "fairlock-close", kind: fair, Cast: []string{"L L", "L"}, Faults: Faults{Closures: 1},
			Detours: 2},
		{Name: "fairlock-try", Small: true, kind: fair, Cast: []string{"T L", "L"}, Detours: 2},
		{Name: "fairlock-lease", kind: fair, Cast: []string{"F L", "F"}, Detours: 2},
		{Name: "fairlock-force", Small: true, kind: fair, Cast: []string{"L L", "L"},
			Faults: Faults{Forces: 1}, Detours: 2},
		{Name: "fairlock-delete", kind: fair, Cast: []string{"L L", "L"},
			Faults: Faults{Deletions: 1, Waits: 1}, Detours: 2},
		{Name: "fairlock-stays", Small: true, kind: fair, Cast: []string{"S L", "L"}, Detours: 2},

		{Name: "rwlock-session", Small: true, kind: readWrite, Cast: []string{"R R", "L"}, Detours: 2},
		{Name: "rwlock-mixed", Small: true, kind: readWrite, Cast: []string{"R L", "R"}, Detours: 2},
		{Name: "rwlock-writers", Small: true, kind: readWrite, Cast: []string{"L L", "L"}, Detours: 2},
		{Name: "rwlock-cut", Small: true, kind: readWrite, Cast: []string{"R R", "L"}, Faults: cut,
			Detours: 2},
		{Name: "rwlock-messages", kind: readWrite, Cast: []string{"R L", "R"}, Faults: lossy, Detours: 2},
		{Name: "rwlock-away", kind: readWrite, Cast: []string{"D R", "L"}, Faults: Faults{Cutoffs: 1},
			Detours: 2},
		{Name: "rwlock-reduce", Small: true, kind: readWrite, Cast: []string{"D R", "R"}, Detours: 2},
		{Name: "rwlock-leave", Small: true, kind: readWrite, Cast: []string{"L", "L", "L"}, Options: patient,
			Faults: Faults{Cancels: 1}, Detours: 2},
		{Name: "rwlock-force", Small: true, kind: readWrite, Cast: []string{"R R", "L"},
			Faults: Faults{Forces: 1}, Detours: 2},
		{Name: "rwlock-delete", Small: true, kind: readWrite, Cast: []string{"R R", "L"},
			Faults: Faults{Deletions: 1}, Detours: 2},
		{Name: "rwlock-clock", Small: true, kind: readWrite, Cast: []string{"R R", "L"},
			Faults: Faults{ClockSets: 1}, Detours: 2},
		{Name: "rwlock-try", Small: true, kind: readWrite, Cast: []string{"R r", "L"}, Detours: 2},

		{Name: "semaphore", Small: true, kind: permits, Cast: []string{"1 1", "2"}, Detours: 2},
		{Name: "semaphore-again", kind: permits, Cast: []string{"1 1", "2"},
			Faults: Faults{Waits: 1}, Detours: 3},
		{Name: "semaphore-more", kind: permits, Cast: []string{"1 1", "1 1"}, Detours: 2},
		{Name: "semaphore-cut", Small: true, kind: permits, Cast: []string{"1", "2"}, Faults: cut,
			Detours: 2},
		{Name: "semaphore-cancel", Small: true, kind: permits, Cast: []string{"1 1", "2"},
			Faults: Faults{Cancels: 2}, Detours: 2},
		{Name: "semaphore-messages", Small: true, kind: permits, Cast: []string{"1 1", "2"}, Faults: lossy,
			Detours: 2},
		{Name: "semaphore-away", kind: permits, Cast: []string{"1 1", "2"}, Faults: Faults{Cutoffs: 1},
			Detours: 2},
		{Name: "semaphore-close", kind: permits, Cast: []string{"1 1", "2"}, Faults: Faults{Closures: 1},
			Detours: 2},
		{Name: "semaphore-limit", Small: true, kind: permits, Cast: []string{"1 1", "2"},
			Faults: Faults{Limits: 1}, Detours: 2},
		{Name: "semaphore-force", Small: true, kind: permits, Cast: []string{"1 1", "2"},
			Faults: Faults{Forces: 1}, Detours: 2},
		{Name: "semaphore-delete", Small: true, kind: permits, Cast: []string{"1 1", "2"},
			Faults: Faults{Deletions: 1}, Detours: 2},
		{Name: "semaphore-try", kind: permits, Cast: []string{"1 t", "t 2"}, Detours: 2},
		{Name: "semaphore-linger", kind: permits, Cast: []string{"11 1", "2"}, Lingers: true,
			Faults: Faults{Losses: 1}, Detours: 2},
	}
}
