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
// lock is free at some time from then on. An acquisition that failed is none: it has promised nothing to anybody.
type Op struct {
	Lock   string `json:",omitempty"`
	Owner  string `json:",omitempty"` // who may re-enter
	Kind   Kind
	Token  int64 `json:",omitempty"`
	Call   int64 `json:",omitempty"`
	Return int64 `json:",omitempty"`
}

// mutex is the state of a model.
type mutex struct {
	owner string
	count int
	last  int64 // token
}

// Model is a mutex that knows its owner: whoever does not hold it cannot release it. An
// owner may enter a reentrant one again. A fenced one gives each owner a token above all that it gave before, and
// the same to nested holds. These are the four models of the Jepsen tests of Hazelcast's CP subsystem.
func Model(reentrant, fenced bool) porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byLock := map[string][]porcupine.Operation{}
			for _, o := range history {
				lock := o.Input.(Op).Lock
				byLock[lock] = append(byLock[lock], o)
			}
			return slices.Collect(maps.Values(byLock))
		},
		Init: func() any { return mutex{} },
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
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	}
}

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

// Hold is an owner's time in a lock, from its outermost acquisition to the end of its last hold.
type Hold struct {
	Lock, Owner       string
	Token             int64
	Call, Return, End int64
	Nested            int  // nested holds
	Strange           int  // nested holds with another token, and releases of what was not held
	Lost              bool // it did not end by itself
}

// Holds puts the ops together. Those of one owner and lock are in their order; the holds
// come in the order of their Call.
func Holds(ops []Op) (holds []Hold) {
	type key struct{ lock, owner string }
	open := map[key]*Hold{}
	count := map[key]int{}
	end := func(k key, at int64, lost bool) {
		h := open[k]
		h.End, h.Lost = at, lost
		holds = append(holds, *h)
		delete(open, k)
		delete(count, k)
	}
	for _, o := range ops {
		k := key{o.Lock, o.Owner}
		h := open[k]
		switch {
		case o.Kind == Acquire && h == nil:
			open[k] = &Hold{Lock: o.Lock, Owner: o.Owner, Token: o.Token, Call: o.Call, Return: o.Return}
			count[k] = 1
		case h == nil:
			holds = append(holds, Hold{Lock: o.Lock, Owner: o.Owner, Token: o.Token, Call: o.Call, Return: o.Call, End: o.Call, Strange: 1})
		case o.Kind == Acquire:
			h.Nested++
			count[k]++
			if o.Token != h.Token {
				h.Strange++
			}
		case o.Kind == Lose:
			end(k, o.Call, true)
		default:
			if count[k]--; count[k] == 0 {
				end(k, o.Call, false)
			}
		}
	}
	for _, h := range open { // believed until its grant at least
		h.End = h.Return
		holds = append(holds, *h)
	}
	slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Call, b.Call) })
	return holds
}

// Verdict counts what a reentrant fenced mutex could not have shown.
type Verdict struct {
	Overlaps int    // holds that were granted while one with a smaller token was still believed
	Unfenced int    // holds whose token is not above that of every hold which was granted before they were asked for
	Strange  int    // nested holds with a token of their own, releases of what was not held
	Example  string // of an overlap
}

// Judge judges the holds of one history, in the time that sorting them takes: tokens say in which order the holds must
// have been. So it accepts what Model(true, true) accepts, and counts what is wrong.
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

// unfenced counts the holds of one lock that were asked for after a hold with a larger token had been granted.
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
		all = append(all, Op{h.Lock, h.Owner, Acquire, h.Token, h.Call, h.Return}, Op{h.Lock, h.Owner, end, h.Token, h.End, h.End})
	}
	return all
}
