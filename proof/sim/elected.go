package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/rlock"
)

// elected has the rules of an election: the rules of its fair lock, and rules for the values that leaders
// proclaim and observers see.
type elected struct {
	exclusive
	said      said                // value in Redis after the last request
	former    said                // value in Redis before said
	lost      time.Time           // time at which Redis last lost a value
	owner     map[int64]string    // attempt that was granted a token, by token
	leads     map[string]*held    // leaderships by attempt
	terms     map[string]*term    // terms, by name
	looks     map[sight]time.Time // time at which a process last found this leader
	observers map[*observer]struct{}
	shown     election.Leader // leader that an observer could see at the last call of due
	since     time.Time       // time since which observers can see shown
}

// said is the value of a leader in Redis.
type said struct {
	owner         string
	token, number int64
	value         string
}

// A sight is a leader that a process has found.
type sight struct {
	process string
	leader  election.Leader
}

// A term is a call of Campaign and its leadership.
type term struct {
	name   string
	values int       // number of values that were proclaimed; each value ends with its number
	since  time.Time // time at which the last value was made
	part   *held     // the leadership; nil: the call does not lead yet
}

// next returns the next value, which the caller must proclaim at once. The caller must hold world.mu.
func (t *term) next() string {
	t.values, t.since = t.values+1, time.Now()
	return t.newest()
}

func (t *term) newest() string { return fmt.Sprint(t.name, "#", t.values) }

// An observer is a call of Observe.
type observer struct {
	p      *process
	since  time.Time       // start of the call, or end of the last step
	busy   bool            // the body of the loop runs
	begun  bool            // the loop has had a step
	shown  election.Leader // leader of the last step
	token  int64           // highest token of a step
	value  int             // number of the last value of the leader with this token
	behind time.Time       // time since which the present leader is missing; zero: the observer has seen it
}

func newElected(l *lock) *elected {
	return &elected{exclusive: exclusive{l}, owner: map[int64]string{}, leads: map[string]*held{},
		terms: map[string]*term{}, looks: map[sight]time.Time{}, observers: map[*observer]struct{}{}}
}

// read returns the stored value.
func (l *elected) read() (v said) {
	f := strings.SplitN(l.on[0].HGet(l.key, "leader"), " ", 4)
	if len(f) == 4 {
		v = said{f[0], number(f[1]), number(f[2]), f[3]}
	}
	return v
}

// view returns the leader that a process should see now.
func (l *elected) view() election.Leader {
	v := l.read()
	if owner, token := l.present(l.on[0]); v.owner == "" || owner != v.owner || token != v.token {
		return election.Leader{}
	}
	return election.Leader{Value: v.value, Token: v.token, Owner: v.owner}
}

func (l *elected) executed(c *call, now int64) {
	w, before := l.w, l.said
	want, after := before, l.read()
	if l.said = after; after != before {
		l.former = before
	}
	owner, token := l.present(c.server)
	switch c.name {
	case "proclaim":
		said := said{c.argv[0], c.number(1), c.number(2), c.argv[3]}
		mine := before.owner == said.owner && before.token == said.token
		switch {
		case owner != said.owner || token != said.token:
			w.counts.Add("proclaims that came too late")
		case mine && before.number >= said.number:
			w.counts.Add("proclaimed before")
		default:
			want = said
			w.counts.Add("proclaimed")
			if t := l.terms[termOf(said.value)]; t != nil && t.part != nil && time.Since(t.since) > lease/4 {
				w.counts.Add("stored again")
			}
		}
		w.log("%s: proclaims %s as number %d under %d; Redis has %s, %d",
			c.from.Name, said.value, said.number, said.token, after.value, after.number)
	case "retract":
		if before.owner == c.argv[0] && before.token == c.number(1) {
			want = said{}
		}
		w.log("%s: retracts the value under %d; Redis has %s", c.from.Name, c.number(1), after.value)
	case "leader":
		found := l.view()
		l.looks[sight{c.from.Name, found}] = time.Now()
		w.log("%s: looks, and the leader is %d, %s", c.from.Name, found.Token, found.Value)
	default:
		if c.name == "release" {
			if e := l.leads[c.argv[0]]; e != nil && e.valid() {
				w.fail("%s: the lock is released under %d, and its leader is not told", e.who, e.token)
			}
		}
		was := l.token
		l.exclusive.executed(c, now)
		if l.token != was && l.token != 0 {
			l.owner[l.token], _ = l.present(c.server)
		}
	}
	if after != want && after != (said{}) { // the value is gone if the hash expires
		w.fail("a request to %s made the value %s, number %d under %d, and not %s, number %d under %d",
			c.name, after.value, after.number, after.token, want.value, want.number, want.token)
	} else if after != want && want.token == token {
		w.fail("a request to %s lost the value %s under %d", c.name, want.value, want.token)
	}
	l.beliefs()
}

func (l *elected) forgotten(s *server) {
	l.exclusive.forgotten(s)
	l.said = l.read()
}

func (l *elected) deleted() {
	l.exclusive.deleted()
	l.said, l.lost = l.read(), time.Now()
}

// lose deletes the value by hand, or restores the former value.
func (l *elected) lose() {
	s, v := l.on[0], l.former
	s.tick()
	switch {
	case l.said == (said{}) || l.said != l.read():
		return
	case v.owner == l.said.owner && v.token == l.said.token && v.number < l.said.number:
		s.HSet(l.key, "leader", fmt.Sprintf("%s %d %d %s", v.owner, v.token, v.number, v.value))
		l.w.counts.Add("values put back by hand")
	default:
		s.HDel(l.key, "leader")
		l.w.counts.Add("values deleted by hand")
	}
	l.w.log("%s is lost", l.said.value)
	l.said, l.lost = l.read(), time.Now()
}

// termOf returns the name of the term of a value.
func termOf(value string) string {
	name, _, _ := strings.Cut(value, "#")
	return name
}

// numberOf returns the number of a value in its term.
func numberOf(value string) int {
	_, after, _ := strings.Cut(value, "#")
	n, _ := strconv.Atoi(after)
	return n
}

// observe follows the leaders, in one loop after another, until the process has ended.
func (l *elected) observe(p *process, rnd *rand.Rand) {
	w := l.w
	e := election.New(p.sessions[0], l.name)
	for {
		w.sleep(upTo(rnd, 20*time.Millisecond, time.Second))
		w.thawed(p)
		w.mu.Lock()
		over := w.ending || p.over()
		o := &observer{p: p, since: time.Now()}
		if !over {
			l.observers[o] = struct{}{}
			w.log("%s: observes", p.name)
		}
		w.mu.Unlock()
		if over {
			return
		}
		ctx, cancel := context.WithCancel(bg)
		t := time.AfterFunc(w.clock.Until(upTo(rnd, time.Second, 12*time.Second)), cancel)
		for leader, err := range e.Observe(ctx) {
			w.mu.Lock()
			l.saw(ctx, o, leader, err)
			o.busy = true
			w.mu.Unlock()
			if err == nil && rnd.IntN(4) == 0 {
				w.sleep(upTo(rnd, 20*time.Millisecond, time.Second))
			}
			w.thawed(p)
			w.mu.Lock()
			o.busy, o.since, o.behind = false, time.Now(), time.Time{}
			w.mu.Unlock()
			if rnd.IntN(15) == 0 {
				break
			}
		}
		t.Stop()
		cancel()
		w.mu.Lock()
		delete(l.observers, o)
		w.mu.Unlock()
	}
}

// saw checks one step of an observer. The caller must hold world.mu.
func (l *elected) saw(ctx context.Context, o *observer, leader election.Leader, err error) {
	w := l.w
	w.log("%s: sees %d, %s, %v", o.p.name, leader.Token, leader.Value, err)
	switch {
	case err != nil:
		if !leader.None() || !(errors.Is(err, rlock.ErrClosed) && o.p.over() ||
			errors.Is(err, context.Canceled) && ctx.Err() != nil) {
			w.fail("%s: Observe ends with %v and %d", o.p.name, err, leader.Token)
		}
		return
	case o.begun && leader == o.shown:
		w.fail("%s: Observe shows %d, %s twice", o.p.name, leader.Token, leader.Value)
	case leader.None():
		w.counts.Add("seen that there is none")
		for s, at := range l.looks { // a leader from old data is shown as no leader
			if s.process == o.p.name && (s.leader.None() || s.leader.Token < o.token) && !at.Before(o.since) {
				o.begun, o.shown = true, leader
				return
			}
		}
		w.fail("%s: Observe shows no leader, and Redis did not", o.p.name)
	default:
		w.counts.Add("seen")
		if leader.Token < o.token {
			w.fail("%s: Observe shows %d after %d", o.p.name, leader.Token, o.token)
		}
		at, found := l.looks[sight{o.p.name, leader}]
		if !found || at.Before(o.since) {
			w.fail("%s: Observe shows %d, %s, and Redis did not", o.p.name, leader.Token, leader.Value)
		}
		l.check(o.p.name, leader)
		n := numberOf(leader.Value)
		if leader.Token == o.token && n < o.value {
			w.fail("%s: Observe shows value %d of %d after %d", o.p.name, n, leader.Token, o.value)
		}
		o.token, o.value = leader.Token, n
	}
	o.begun, o.shown = true, leader
}

// check compares a leader that was shown with the terms. The caller must hold world.mu.
func (l *elected) check(who string, leader election.Leader) {
	t := l.terms[termOf(leader.Value)]
	switch {
	case l.owner[leader.Token] != leader.Owner:
		l.w.fail("%s is shown %s with %d, which was granted to %s",
			who, short(leader.Owner), leader.Token, short(l.owner[leader.Token]))
	case t == nil:
		l.w.fail("%s is shown %s, which no leader has proclaimed", who, leader.Value)
	case t.part != nil && t.part.token != leader.Token:
		l.w.fail("%s is shown %s under %d, and it was proclaimed under %d",
			who, leader.Value, leader.Token, t.part.token)
	}
}

// due checks that Redis has the newest values, and that observers have seen them.
func (l *elected) due() {
	w, now := l.w, time.Now()
	for _, t := range l.terms {
		if _, ok := l.considered[t.part]; !ok || !t.part.valid() || t.part.void() || t.part.p.over() {
			continue
		}
		late := now.Sub(later(later(t.since, w.quiet), l.lost))
		if v := l.read(); late > lease/3+w.gap && (v.token != t.part.token || v.value != t.newest()) {
			w.fail("%s has proclaimed %s for %v, and Redis has %s", t.part.who, t.newest(), late, v.value)
		}
	}
	view := l.view()
	if view != l.shown {
		l.shown, l.since = view, now
	}
	for o := range l.observers {
		switch { // an older value in Redis is excused, because the next renewal stores the newer one
		case o.busy || o.p.over() || o.begun && (o.shown == view || o.shown.None() && view.Token < o.token ||
			view.Token == o.token && numberOf(view.Value) < o.value):
			o.behind = time.Time{}
			continue
		case o.behind.IsZero():
			o.behind = now
		}
		start := later(o.behind, w.quiet)
		told := now.Sub(later(start, l.since)) > w.gap && !w.deaf && !view.None()
		if told || now.Sub(start) > lease+w.gap { // Observe looks again after a lease at the latest
			w.fail("%s: for %v Observe does not show %d, %s",
				o.p.name, now.Sub(start), view.Token, view.Value)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
