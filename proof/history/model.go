package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Kind is the kind of an Op.
type Kind string

const (
	// Acquire is a call that returned a hold, which may be nested.
	Acquire Kind = "acquire"
	// Release is the instant before an owner unlocks one of its holds.
	Release Kind = "release"
	// Lose ends all holds of an owner, because they were lost or had expired, or because the process was
	// killed.
	Lose Kind = "lose"
)

// Op is an operation of a client, from Call to Return in Unix nanoseconds. In a Release and a Lose, both are
// the instant from which the owner no longer relies on the lock. The lock is free at some later time. A
// failed acquisition is no Op, because it promises nothing.
type Op struct {
	Lock    string `json:",omitempty"`
	Owner   string `json:",omitempty"` // goroutine that uses the lock
	Kind    Kind
	Read    bool  `json:",omitempty"` // in a read-write lock, a hold to read, not to write
	Permits int   `json:",omitempty"` // permits of an Acquire of a semaphore, or the count of a Set
	Token   int64 `json:",omitempty"`
	Call    int64 `json:",omitempty"`
	Return  int64 `json:",omitempty"`
}

// mutex is the state of a mutex's model.
type mutex struct {
	owner string
	count int
	last  int64 // token of the last owner
}

// Model returns the model of a mutex, which only its owner can release. The owner of a reentrant mutex may
// acquire it again. A fenced mutex grants a token above all earlier tokens, and nested holds have the token
// of the outermost hold. The Jepsen tests of Hazelcast's CP subsystem have the same four models.
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

// partition splits a history by lock.
func partition(history []porcupine.Operation) [][]porcupine.Operation {
	byLock := map[string][]porcupine.Operation{}
	for _, o := range history {
		lock := o.Input.(Op).Lock
		byLock[lock] = append(byLock[lock], o)
	}
	return slices.Collect(maps.Values(byLock))
}

func describe(input, _ any) string { return fmt.Sprintf("%+v", input) }

// Operations converts ops for porcupine.
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

// Verdict counts the violations in a history.
type Verdict struct {
	// Overlaps is the number of holds that were granted while another owner relied on a hold that excludes
	// them. It includes the runs of a latch that began before the previous run ended.
	Overlaps int
	Unfenced int    // holds whose token is too small, or equals the token of another hold
	Strange  int    // nested holds with another token, releases without a hold, and the like
	Early    int    // waits for a latch that ended before the count was 0
	Example  string // describes the first overlap or early wait
}

// Judge judges the holds of a history. It agrees with Model(true, true) and counts violations, but takes no
// longer than sorting. Sorting is enough because the tokens give the order of the grants.
func Judge(holds []Hold) (v Verdict) {
	byLock := map[string][]Hold{}
	for _, h := range holds {
		byLock[h.Lock] = append(byLock[h.Lock], h)
		v.Strange += h.Strange
	}
	for _, holds := range byLock {
		v.Unfenced += unfenced(holds)
		slices.SortStableFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Token, b.Token) })
		free := int64(0) // the earliest instant at which all earlier holds can have ended
		var latest Hold  // the hold that ended at that instant
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

// unfenced counts the holds of one lock whose call began after a hold with a larger token was granted.
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

// Outermost returns the ops without the ops of nested holds, for the model of a mutex that is not reentrant.
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
