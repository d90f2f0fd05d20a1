package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Kind is what a client saw.
type Kind string

const (
	// Acquire: it got the lock, with a token. The first hold of an owner, or a nested one.
	Acquire Kind = "acquire"
	// Release: an owner was about to unlock one of its holds.
	Release Kind = "release"
	// Lose: an owner's holds were all over: canceled, their time was up, or its process was killed.
	Lose Kind = "lose"
)

// Op is one thing that a client saw, from Call to Return in Unix nanoseconds. A
// Release and a Lose are points: when the owner ceased to believe that it holds. The
// lock is free at some time from then on. An acquisition that failed is no Op: it has promised nothing.
type Op struct {
	Lock    string `json:",omitempty"`
	Owner   string `json:",omitempty"` // who may re-enter
	Kind    Kind
	Read    bool  `json:",omitempty"` // of a read-write lock: to read, and not to write
	Permits int   `json:",omitempty"` // that an Acquire got of a semaphore; the count of a Set
	Token   int64 `json:",omitempty"`
	Call    int64 `json:",omitempty"`
	Return  int64 `json:",omitempty"`
}

// mutex is the state of a model.
type mutex struct {
	owner string
	count int
	last  int64 // token
}

// Model is a mutex that knows its owner: an owner that does not hold it cannot release it. An
// owner may enter a reentrant one again. A fenced one gives each owner a token above all that it gave before,
// and the same to nested holds. These are the four models of the Jepsen tests of Hazelcast's CP subsystem.
func Model(reentrant, fenced bool) porcupine.Model {
	return porcupine.Model{
		Partition: partition,
		Init:      func() any { return mutex{} },
		Step: func(state, input, _ any) (bool, any) {
			m, op := state.(mutex), input.(Op)
			mine := m.count > 0 && m.owner == op.Owner && (!fenced || m.last == op.Token)
			switch {
			case op.Kind == Acquire && m.count == 0:
				return !fenced || op.Token > m.last, mutex{op.Owner, 1, op.Token}
			case op.Kind == Acquire:
				return reentrant && mine, mutex{m.owner, m.count + 1, m.last}
			case op.Kind == Release:
				return mine, mutex{m.owner, m.count - 1, m.last}
			}
			return mine, mutex{last: m.last}
		},
		DescribeOperation: describe,
	}
}

// partition has each lock judged by itself.
func partition(history []porcupine.Operation) [][]porcupine.Operation {
	byLock := map[string][]porcupine.Operation{}
	for _, o := range history {
		lock := o.Input.(Op).Lock
		byLock[lock] = append(byLock[lock], o)
	}
	return slices.Collect(maps.Values(byLock))
}

func describe(input, _ any) string { return fmt.Sprintf("%+v", input) }

// Operations are the ops for porcupine.
func Operations(ops []Op) []porcupine.Operation {
	clients := map[string]int{}
	all := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		id, ok := clients[o.Owner]
		if !ok {
			id = len(clients)
			clients[o.Owner] = id
		}
		all[i] = porcupine.Operation{ClientId: id, Call: o.Call, Return: o.Return, Input: o}
	}
	return all
}

// Verdict counts what the primitive could not have shown.
type Verdict struct {
	// Holds that were granted while a hold that excludes them was still considered valid; runs of a latch
	// that began in another.
	Overlaps int
	Unfenced int    // holds whose token is not above those that it must be above
	Strange  int    // nested holds with a token of their own, releases of what was not held
	Early    int    // waits for a latch that ended before its count was 0
	Example  string // of an overlap, or of a wait that ended early
}

// Judge judges the holds of one history, in the time that sorting them takes: tokens say in which order the
// holds must have been. So it accepts what Model(true, true) accepts, and counts what is wrong.
func Judge(holds []Hold) (v Verdict) {
	byLock := map[string][]Hold{}
	for _, h := range holds {
		byLock[h.Lock] = append(byLock[h.Lock], h)
		v.Strange += h.Strange
	}
	for _, holds := range byLock {
		v.Unfenced += unfenced(holds)
		slices.SortStableFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Token, b.Token) })
		free := int64(0) // the earliest instant at which those before can have gone
		var latest Hold  // the one that went then
		for i, h := range holds {
			if i > 0 && h.Token == holds[i-1].Token {
				v.Unfenced++
			}
			begun := max(free, h.Call)
			if begun > min(h.Return, h.End) {
				v.Overlaps++
				v.Example = cmp.Or(v.Example, fmt.Sprintf("%+v was granted before the end of %+v", h, latest))
			}
			if free = max(begun, h.End); free == h.End {
				latest = h
			}
		}
	}
	return v
}

// unfenced counts the holds of one lock that were asked for after a hold with a larger token had been
// granted.
func unfenced(holds []Hold) (n int) {
	granted := slices.Clone(holds)
	slices.SortFunc(granted, func(a, b Hold) int { return cmp.Compare(a.Return, b.Return) })
	asked := slices.Clone(holds)
	slices.SortFunc(asked, func(a, b Hold) int { return cmp.Compare(a.Call, b.Call) })
	last := int64(0)
	for _, h := range asked {
		for len(granted) > 0 && granted[0].Return < h.Call {
			last = max(last, granted[0].Token)
			granted = granted[1:]
		}
		if h.Token < last {
			n++
		}
	}
	return n
}

// Outermost are the ops of the outermost holds: what a mutex that is not reentrant shows.
func Outermost(ops []Op) []Op {
	var all []Op
	for _, h := range Holds(ops) {
		end := Release
		if h.Lost {
			end = Lose
		}
		all = append(all, Op{Lock: h.Lock, Owner: h.Owner, Kind: Acquire, Token: h.Token, Call: h.Call,
			Return: h.Return},
			Op{Lock: h.Lock, Owner: h.Owner, Kind: end, Token: h.Token, Call: h.End, Return: h.End})
	}
	return all
}
