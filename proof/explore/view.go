package explore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// View is a decoded copy of a state, which can be changed.
type View[A comparable] struct {
	Shared
	Actors  []A
	sys     *System[A]
	space   uint32
	net     []uint32 // sorted
	failure error
}

func (v *View[A]) encode() string {
	s := v.sys
	b := make([]byte, 0, 4*(2+len(v.Actors)+len(v.net)))
	b = binary.LittleEndian.AppendUint32(b, s.commons.number(v.Shared))
	b = binary.LittleEndian.AppendUint32(b, v.space)
	for _, a := range v.Actors {
		b = binary.LittleEndian.AppendUint32(b, s.people.number(a))
	}
	for _, n := range v.net {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return string(b)
}

// view decodes a state into v, and reuses the slices of v.
func (s *System[A]) view(state string, v *View[A]) *View[A] {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32([]byte(state[4*i : 4*i+4])) }
	v.sys, v.failure = s, nil
	v.Shared = s.commons.values[word(0)]
	v.space, v.Actors, v.net = word(1), v.Actors[:0], v.net[:0]
	i := 2
	for range s.actors {
		v.Actors = append(v.Actors, s.people.values[word(i)])
		i++
	}
	for ; 4*i < len(state); i++ {
		v.net = append(v.net, word(i))
	}
	return v
}

// Fail records a violation, unless there is one already.
func (v *View[A]) Fail(format string, args ...any) {
	if v.failure == nil {
		v.failure = fmt.Errorf(format, args...)
	}
}

// Send sends a request of an actor.
func (v *View[A]) Send(p Packet) { v.add(p) }

func (v *View[A]) add(p Packet) {
	n := v.sys.packets.number(p)
	at, _ := slices.BinarySearch(v.net, n)
	v.net = slices.Insert(v.net, at, n)
}

func (v *View[A]) remove(n uint32) {
	at, ok := slices.BinarySearch(v.net, n)
	if !ok {
		panic("explore: no such packet")
	}
	v.net = slices.Delete(v.net, at, at+1)
}

// UnderWay returns the kind of an actor's packet in flight, request or reply, and whether there is one.
func (v *View[A]) UnderWay(actor int, tag uint8) (kind, bool) {
	for _, n := range v.net {
		p := &v.sys.packets.values[n]
		if (p.Kind == request || p.Kind == reply) && int(p.To) == actor && p.Tag == tag {
			return p.Kind, true
		}
	}
	return 0, false
}

// Forsake ends an exchange for which its actor does not wait any more. It drops the reply. The request may
// still arrive if Left.LateCopies allows one more.
func (v *View[A]) Forsake(actor int, tag uint8) {
	for _, n := range slices.Clone(v.net) {
		p := v.sys.packets.values[n]
		if int(p.To) != actor || p.Tag != tag || p.Kind != request && p.Kind != reply {
			continue
		}
		v.remove(n)
		if p.Kind == request && v.Left.LateCopies > 0 {
			v.Left.LateCopies--
			p.Kind, p.Tag, p.Sent = orphan, 0, 0
			v.add(p)
		}
	}
}

// Space returns the server's key space.
func (v *View[A]) Space() *keyspace.Space { return v.sys.contents[v.space] }

// violation returns the first violation in the state, or nil.
func (v *View[A]) violation() error {
	if v.failure != nil {
		return v.failure
	}
	return v.sys.rules.Check(v)
}

// listener returns the session that is subscribed to a channel, or -1.
func (v *View[A]) listener(channel string) int {
	session, ok := v.sys.listeners[channel]
	if !ok || (v.LostSubs|v.Crashed)>>session&1 != 0 {
		return -1
	}
	return session
}

// serverNow returns the time by the server's clock.
func (v *View[A]) serverNow() int64 { return v.Now - v.Back }

// revive records the owner of a request that runs although it was void before the server's clock was set
// back. Its tombstone has expired, so an ended attempt may be granted a lock, which then has no holder for
// one lease (see docs/failures.md), or until a release follows. acquires and releases are the indexes of the
// two scripts.
func (v *View[A]) revive(p Packet, acquires, releases int8) {
	if v.Back == 0 || p.Script != acquires && p.Script != releases {
		return
	}
	argv := strings.Split(p.Argv, separator)
	owner := argv[0]
	switch {
	case p.Script == releases:
		v.Revived = strings.Replace(v.Revived, owner+" ", "", 1)
	case v.serverNow() <= integer(argv[2]) && integer(argv[2]) < v.Now && !v.revived(owner):
		v.Revived += owner + " "
	}
}

func (v *View[A]) revived(owner string) bool {
	return slices.Contains(strings.Fields(v.Revived), owner)
}

func (v *View[A]) env() keyspace.Env {
	return keyspace.Env{Now: v.serverNow(), Listening: func(channel string) int {
		if v.listener(channel) < 0 {
			return 0
		}
		return 1
	}}
}

// execute runs the script of a request on the server.
func (v *View[A]) execute(number uint32) effect {
	s := v.sys
	p := s.packets.values[number]
	key := cause{v.space, number, v.serverNow(), v.LostSubs | v.Crashed}
	e, ok := s.effects[key]
	if !ok {
		before, keys, argv := s.contents[key.space], s.rules.Keys(p.Script), strings.Split(p.Argv, separator)
		env := v.env()
		var did keyspace.Effect
		if s.live != nil {
			env.Now, before, did = s.live.run(p, keys, argv)
		} else {
			did = s.scripts[p.Script].Run(before, env, keys, argv)
			did.Space.Purge(env.Now)
		}
		e = effect{space: s.spaceNumber(did.Space), reply: did.Reply, news: did.Published}
		if did.Err != nil {
			e.failed, e.reply = true, did.Err.Error()
		}
		e.observation = s.rules.Observe(env, p, before, did)
		s.effects[key] = e
	}
	v.space = e.space
	for _, m := range e.news {
		if session := v.listener(m.Channel); session >= 0 {
			v.add(Packet{Kind: news, To: int8(session), Text: m.Text})
		}
	}
	s.rules.Observed(v, p, e.observation)
	return e
}

// arrive delivers a packet.
func (v *View[A]) arrive(number uint32) {
	s := v.sys
	p := s.packets.values[number]
	v.remove(number)
	switch p.Kind {
	case request:
		e := v.execute(number)
		v.add(Packet{Kind: reply, To: p.To, Tag: p.Tag, Script: p.Script, Sent: p.Sent,
			Text: e.reply, Failed: e.failed})
	case orphan, errand:
		v.execute(number)
	case reply:
		s.rules.Replied(v, int(p.To), p)
	case news:
		s.rules.Heard(v, int(p.To), p.Text)
	}
}

// tick advances the clock.
func (v *View[A]) tick() {
	v.Now += tick
	if v.sys.live != nil {
		v.space = v.sys.spaceNumber(v.sys.live.waitUntil(v.Now))
	} else {
		v.space = v.sys.purge(v.space, v.serverNow())
	}
	v.sys.rules.Ticked(v)
}

func (s *System[A]) purge(n uint32, now int64) uint32 {
	key := purge{n, now}
	to, ok := s.purged[key]
	if !ok {
		space := s.contents[n].Clone()
		space.Purge(now)
		to = s.spaceNumber(space)
		s.purged[key] = to
	}
	return to
}

// crash ends a session. Its requests may still arrive, and packets to it are dropped.
func (v *View[A]) crash(session int) {
	v.Crashed |= 1 << session
	v.LostSubs &^= 1 << session
	for _, n := range slices.Clone(v.net) {
		p := v.sys.packets.values[n]
		mine := int(p.To) == session
		if p.Kind != news {
			mine = p.To >= 0 && v.sys.rules.SessionOf(int(p.To)) == session
		}
		if !mine || p.Kind == orphan {
			continue
		}
		v.remove(n)
		if (p.Kind == request || p.Kind == errand) && v.Left.LateCopies > 0 {
			v.Left.LateCopies--
			p.Kind, p.Tag, p.Sent = orphan, 0, 0
			v.add(p)
		}
	}
	v.sys.rules.Crashed(v, session)
}
