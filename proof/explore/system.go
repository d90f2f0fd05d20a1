package explore

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// A system has a server, a network, actors in sessions, a common clock, and a number of faults that are left.
// In a step of the network, one packet arrives or is lost. The reaction of an actor belongs to the same step.

// Faults limits the number of faults, and of ticks, after which a world ends.
type Faults struct {
	Ticks       uint8 // of the clock
	LostReplies uint8 // a script runs, and its caller gets no reply
	// The caller stops waiting for a request and sends another copy. The first arrives at any time, or never.
	LateCopies uint8
	LostNews   uint8 // messages of pub/sub
	LostSubs   uint8 // subscriptions that are down for a while
	Crashes    uint8 // of sessions
	Cancels    uint8 // waits that are canceled
	Forced     uint8 // unlocks by an operator
	SetBack    uint8 // of the server's clock, by a tick
	Extra      uint8 // meaning depends on the rules
}

// Shared is the part of a state that belongs to no actor.
type Shared struct {
	Now      int64 // microseconds, by the clock of all sessions
	Back     int64 // the difference by which the server's clock was set back
	Left     Faults
	Crashed  uint16 // crashed sessions, one bit for each
	LostSubs uint16 // sessions without a subscription, one bit for each
	Calm     bool   // no more faults
	Granted  int64  // the last token
	Revived  string // names of the owners for revive, with spaces between
}

const (
	tick  = int64(700_000) // microseconds
	epoch = int64(1e12)    // start of a world
)

// kind is the kind of a packet.
type kind uint8

const (
	request kind = iota
	orphan       // a request for whose reply no actor waits any more; may never arrive
	errand       // a request for whose reply no actor waits, sent again until it arrives
	reply
	news // of pub/sub
)

// Packet is a packet in flight. It must be comparable.
type Packet struct {
	Kind   kind
	To     int8   // actor that sent the request, or session of a message
	Tag    uint8  // number of the actor's exchange
	Script int8   // index
	Argv   string // arguments of a request, joined by separator
	Sent   int64  // time at which the request was sent
	Text   string // of a reply or a message
	Failed bool   // the reply is an error
}

const separator = "\x00"

// Rules describe the behavior of the actors. An actor is a comparable value. A View is a copy of a state,
// which the rules may change.
type Rules[A comparable] interface {
	// Start returns the initial actors and Shared.
	Start() ([]A, Shared)
	// SessionOf returns the session of an actor.
	SessionOf(actor int) int
	// Channel returns the channel to which a session subscribes.
	Channel(session int) string
	// Keys returns the keys of a script.
	Keys(script int8) []string
	// Moves calls do with each move that an actor can make without a packet.
	Moves(v *View[A], do func(what string, who int, move func(v *View[A])))
	// Replied handles the reply to a request.
	Replied(v *View[A], actor int, p Packet)
	// Heard handles a message to a session.
	Heard(v *View[A], session int, text string)
	// Crashed ends the actors of a session.
	Crashed(v *View[A], session int)
	// Ticked is called when the clock has advanced.
	Ticked(v *View[A])
	// Observe checks the effect of a script. It is called once for each request in each state of the server,
	// so its result must depend on nothing else.
	Observe(env keyspace.Env, p Packet, before *keyspace.Space, did keyspace.Effect) any
	// Observed handles the result of Observe.
	Observed(v *View[A], p Packet, observation any)
	// Check is called with each state.
	Check(v *View[A]) error
	// Calm makes the only move of a calm world without packets in flight. It returns false if the clock has
	// to advance instead.
	Calm(v *View[A]) bool
	// Over reports whether no actor has anything left to do.
	Over(v *View[A]) bool
	// End checks the last state of a calm world.
	End(v *View[A]) error
}

// System is a world of Rules.
type System[A comparable] struct {
	rules   Rules[A]
	actors  int
	scripts []*keyspace.Script

	spaces   table[string]
	contents []*keyspace.Space // by index in spaces
	people   table[A]
	packets  table[Packet]
	commons  table[Shared]
	effects  map[cause]effect
	purged   map[purge]uint32
	scratch  View[A]

	listeners map[string]int // session of each channel
	live      *live          // nil for the model's server
}

type cause struct {
	space, packet uint32
	now           int64
	deaf          uint16
}

type effect struct {
	space       uint32
	reply       string
	failed      bool
	news        []keyspace.Message
	observation any
}

type purge struct {
	space uint32
	now   int64
}

// table numbers values.
type table[T comparable] struct {
	numbers map[T]uint32
	values  []T
}

func (t *table[T]) number(v T) uint32 {
	n, ok := t.numbers[v]
	if !ok {
		if t.numbers == nil {
			t.numbers = map[T]uint32{}
		}
		n = uint32(len(t.values))
		t.numbers[v] = n
		t.values = append(t.values, v)
	}
	return n
}

// NewSystem makes a world of a server with scripts.
func NewSystem[A comparable](rules Rules[A], scripts []*keyspace.Script) *System[A] {
	actors, _ := rules.Start()
	s := &System[A]{rules: rules, actors: len(actors), scripts: scripts,
		effects: map[cause]effect{}, purged: map[purge]uint32{}, listeners: map[string]int{}}
	for session := range s.sessions() {
		s.listeners[rules.Channel(session)] = session
	}
	return s
}

func (s *System[A]) sessions() int { return s.rules.SessionOf(s.actors-1) + 1 }

func (s *System[A]) start() string {
	v := View[A]{sys: s}
	v.Actors, v.Shared = s.rules.Start()
	v.space = s.spaceNumber(keyspace.New())
	return v.encode()
}

func (s *System[A]) spaceNumber(space *keyspace.Space) uint32 {
	n := s.spaces.number(space.Encode())
	if int(n) == len(s.contents) {
		s.contents = append(s.contents, space)
	}
	return n
}

// each calls do with all steps of a state: functions that return the step and make its changes.
func (s *System[A]) each(v *View[A], do func(step func() Step, change func(v *View[A]))) {
	did := func(what string, who int, number uint32, change func(v *View[A])) {
		do(func() Step {
			step := Step{What: what, Who: who}
			if number != none {
				step.Packet = s.name(s.packets.values[number])
			}
			return step
		}, change)
	}
	for i, number := range v.net {
		if i > 0 && number == v.net[i-1] {
			continue // an equal packet makes the same steps
		}
		p := &s.packets.values[number]
		did([...]string{"execute", "execute late", "execute errand", "deliver", "deliver"}[p.Kind], -1,
			number, func(v *View[A]) { v.arrive(number) })
		if p.Kind == request && v.Left.LostReplies > 0 {
			did("execute, reply lost", -1, number, func(v *View[A]) {
				v.Left.LostReplies--
				v.remove(number)
				v.execute(number)
			})
		}
		if p.Kind == request && v.Left.LateCopies > 0 {
			did("delay", -1, number, func(v *View[A]) {
				v.Forsake(int(p.To), p.Tag)
			})
		}
		if p.Kind == news && v.Left.LostNews > 0 {
			did("lose", -1, number, func(v *View[A]) {
				v.Left.LostNews--
				v.remove(number)
			})
		}
	}
	s.rules.Moves(v, func(what string, who int, move func(v *View[A])) { did(what, who, none, move) })
	for session := range s.sessions() {
		if v.Crashed>>session&1 != 0 {
			continue
		}
		if v.Left.Crashes > 0 {
			did("crash", session, none, func(v *View[A]) {
				v.Left.Crashes--
				v.crash(session)
			})
		}
		if v.LostSubs>>session&1 != 0 {
			did("subscribe again", session, none, func(v *View[A]) { v.LostSubs &^= 1 << session })
		} else if v.Left.LostSubs > 0 {
			did("stop listening", session, none, func(v *View[A]) {
				v.Left.LostSubs--
				v.LostSubs |= 1 << session
			})
		}
	}
	if v.Left.SetBack > 0 && s.live == nil {
		did("set the clock back", -1, none, func(v *View[A]) {
			v.Left.SetBack--
			v.Back += tick
		})
	}
	if v.Left.Ticks > 0 {
		did("tick", -1, none, func(v *View[A]) {
			v.Left.Ticks--
			v.tick()
		})
	}
}

const none = ^uint32(0)

// name returns a packet's name in a Step, without its times.
func (s *System[A]) name(p Packet) string {
	text, _, _ := strings.Cut(p.Text, " ")
	owner, _, _ := strings.Cut(p.Argv, separator)
	about := ""
	if p.Kind != news {
		about = path.Base(s.scripts[p.Script].Name)
	}
	if p.Kind != news && p.To >= 0 {
		about += fmt.Sprintf(" of %d", p.To)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s",
		[...]string{"request", "late copy", "errand", "reply", "news"}[p.Kind], about, owner, text))
}

func (s *System[A]) steps(state string, yield func(n int, next string, violation error) bool) {
	base := s.view(state, &View[A]{})
	n, stopped := 0, false
	work := &s.scratch
	s.each(base, func(_ func() Step, change func(v *View[A])) {
		if stopped {
			return
		}
		s.view(state, work)
		change(work)
		if !yield(n, work.encode(), work.violation()) {
			stopped = true
		}
		n++
	})
}

func (s *System[A]) describe(state string) []Step {
	steps, _ := s.named(s.view(state, &View[A]{}))
	return steps
}

// named returns the steps of a state, and the functions that make their changes.
func (s *System[A]) named(v *View[A]) (steps []Step, changes []func(v *View[A])) {
	same := map[Step]int{}
	s.each(v, func(name func() Step, change func(v *View[A])) {
		step := name()
		same[step]++
		step.Which = same[step] - 1
		steps, changes = append(steps, step), append(changes, change)
	})
	return steps, changes
}

// calm delivers a packet in flight, or has an actor make its move, or advances the clock. Orphans never
// arrive here, as other states cover their arrival.
func (s *System[A]) calm(state string) (next string, over bool, violation error) {
	v := s.view(state, &s.scratch)
	over, violation = v.goOnCalmly()
	if over {
		return "", true, violation
	}
	return v.encode(), false, violation
}

func (v *View[A]) goOnCalmly() (over bool, violation error) {
	s := v.sys
	if !v.Shared.Calm {
		v.Shared.Calm, v.Left, v.LostSubs = true, Faults{}, 0
		v.net = slices.DeleteFunc(v.net, func(n uint32) bool { return s.packets.values[n].Kind == orphan })
	}
	switch {
	case len(v.net) > 0:
		v.arrive(slices.MinFunc(v.net, func(a, b uint32) int {
			return cmp.Or(cmp.Compare(s.packets.values[a].Kind, s.packets.values[b].Kind), cmp.Compare(a, b))
		}))
	case s.rules.Over(v):
		return true, s.rules.End(v)
	case s.rules.Calm(v):
	default:
		v.tick()
	}
	return false, v.violation()
}
