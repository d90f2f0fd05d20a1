package explore

import (
	"encoding/binary"
	"slices"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// fleet is what Rules are that have three servers, which are alike. Their worlds are reduced in two ways.
//
// A reply arrives as soon as its script has run. So it does in any world up to the next step of its actor, or
// of the clock: steps of others cannot tell. What is lost are replies that are overtaken by another reply to
// the same actor, or by a tick. So many of those as ServerFaults.Slow are explored.
//
// States are the same if they differ by the numbers of the servers alone, with all that is known of each and
// under way to it. No rule looks at a number. The state that is kept is the one that was reached first, so a
// trace has the same numbers from one end to the other.
type fleet[A comparable] interface {
	// Reorder is what an actor is where server i is the one that has been order[i].
	Reorder(actor A, order [3]int) A
	// LongestLease is how long a server that forgets stays away, in microseconds.
	LongestLease() int64
	// Emptied is called when a server has come back empty.
	Emptied(v *View[A])
}

// ServerFaults bounds those of servers, and says which is down.
type ServerFaults struct {
	Slow  uint8 // replies that stay under way
	Downs uint8 // a server does not answer for a while
	Down  int8  // 1 + which; 0: none
	Since int64
}

func (v *View[A]) down(server int) bool { return int(v.Servers.Down) == 1+server }

// serverFaults are the steps in which a server goes down or comes back.
func (s *System[A]) serverFaults(
	v *View[A], did func(what string, who int, number uint32, change func(v *View[A])),
) {
	up := func(v *View[A]) { v.Servers.Down, v.Servers.Since = 0, 0 }
	switch {
	case s.fleet == nil:
	case v.Servers.Down != 0:
		server := int(v.Servers.Down) - 1
		did("server back", server, none, up)
		if v.Now-v.Servers.Since > s.fleet.LongestLease() {
			did("server back, and empty", server, none, func(v *View[A]) {
				up(v)
				v.spaces[server] = s.spaceNumber(keyspace.New())
				if s.live != nil {
					s.live.empty(server)
				}
				s.fleet.Emptied(v)
			})
		}
	case v.Servers.Downs > 0:
		for server := range s.servers {
			did("server down", server, none, func(v *View[A]) {
				v.Servers.Downs--
				v.Servers.Down, v.Servers.Since = int8(1+server), v.Now
			})
		}
	}
}

// orders are all of three servers.
var orders = [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// likeness is the least of the encodings of a state whose servers are numbered in another way.
func (s *System[A]) likeness(state string) string {
	if s.fleet == nil {
		return state
	}
	words := make([]uint32, len(state)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32([]byte(state[4*i : 4*i+4]))
	}
	best, other := slices.Clone(words), make([]uint32, len(words))
	slices.Sort(best[1+s.servers+s.actors:])
	for n, order := range orders[1:] {
		other[0] = s.commonReordered(words[0], order)
		for i, from := range order {
			other[1+i] = words[1+from]
		}
		rest := other[1+s.servers:]
		for i, number := range words[1+s.servers:] {
			if i < s.actors {
				rest[i] = s.actorReordered(number, n+1)
			} else {
				rest[i] = s.packetReordered(number, n+1)
			}
		}
		slices.Sort(rest[s.actors:])
		if slices.Compare(other, best) < 0 {
			best, other = other, best
		}
	}
	b := make([]byte, 0, len(state))
	for _, n := range best {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return string(b)
}

// reorderedOnce finds a number in a table that is filled as it is needed.
func reorderedOnce(table *[]uint32, number uint32, order int, compute func() uint32) uint32 {
	at := int(number)*len(orders) + order
	for len(*table) <= at {
		*table = append(*table, none)
	}
	n := (*table)[at]
	if n == none {
		n = compute()
		(*table)[at] = n
	}
	return n
}

func (s *System[A]) actorReordered(number uint32, order int) uint32 {
	return reorderedOnce(&s.reordered[0], number, order, func() uint32 {
		return s.people.number(s.fleet.Reorder(s.people.values[number], orders[order]))
	})
}

func (s *System[A]) packetReordered(number uint32, order int) uint32 {
	return reorderedOnce(&s.reordered[1], number, order, func() uint32 {
		p := s.packets.values[number]
		to := slices.Index(orders[order][:], int(p.Server))
		if p.Tag != 0 {
			p.Tag += uint8(to) - uint8(p.Server)
		}
		p.Server = int8(to)
		return s.packets.number(p)
	})
}

func (s *System[A]) commonReordered(number uint32, order [3]int) uint32 {
	c := s.commons.values[number]
	if c.Servers.Down == 0 {
		return number
	}
	c.Servers.Down = int8(1 + slices.Index(order[:], int(c.Servers.Down)-1))
	return s.commons.number(c)
}
