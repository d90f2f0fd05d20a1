package handover

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// handoff is what waiters get here.
type handoff = Handoff[*Tenure]

// A place is a list of waiters, and what the model says of it. It is a gate, or a list beside the gates.
type place struct {
	name    string
	gate    *Gate[*Tenure] // nil beside the gates
	list    *List[*Tenure]
	entries int
	waiting []*goroutine
}

// A goroutine waits, or did so.
type goroutine struct {
	*Waiter[*Tenure]
	name string
	at   *place     // nil once it was answered or withdrawn
	told []*handoff // and not received yet; nil: that it is queued
}

// grant is what the model says of the tenure.
type grant struct {
	tokens  []int64 // of the block: that of the present term, and those after it
	first   int64
	entries int32
	change  int64
	used    bool
	state   State
}

// A trial is a random sequence of steps, on the package and on the model.
type trial struct {
	*testing.T
	seed   uint64
	rnd    *rand.Rand
	steps  []string
	gates  []*place
	beside *place
	all    []*goroutine
	tenure Tenure
	grant  grant
	last   int64 // of all tokens of all grants so far
}

// block is how many tokens a grant has here.
const block = 3

var errRefused = errors.New("refused")

func TestWhateverHappensNobodyIsForgottenAndEachIsAnsweredOnce(t *testing.T) {
	for seed := range uint64(1000) {
		newTrial(t, seed).run(60)
	}
}

func newTrial(t *testing.T, seed uint64) *trial {
	r := &trial{T: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1))}
	for _, name := range []string{"root", "hold", "inner"} {
		g := new(Gate[*Tenure])
		r.gates = append(r.gates, &place{name: name, gate: g, list: &g.Waiters})
	}
	r.beside = &place{name: "beside", list: new(List[*Tenure])}
	r.start()
	return r
}

// run takes steps, and then has everybody listen.
func (r *trial) run(steps int) {
	all := []func(*trial){(*trial).enter, (*trial).enter, (*trial).enter, (*trial).leave, (*trial).leave, (*trial).withdraw, (*trial).recheck,
		(*trial).install, (*trial).clear, (*trial).inherit, (*trial).move, (*trial).unshift, (*trial).queued, (*trial).listen, (*trial).answer,
		(*trial).refuse, (*trial).start, (*trial).enterTenure, (*trial).leaveTenure, (*trial).use, (*trial).end, (*trial).passOn, (*trial).passOn}
	for range steps {
		all[r.rnd.IntN(len(all))](r)
		r.check()
	}
	for _, g := range r.all {
		r.receive(g)
	}
	r.check()
}

// step notes what is done next.
func (r *trial) step(format string, args ...any) {
	r.steps = append(r.steps, fmt.Sprintf(format, args...))
}

// expect ends the test, with the steps, unless got is as the model says.
func (r *trial) expect(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		r.Helper()
		r.Fatalf("seed %d: %s: %v, want %v, after:\n%s", r.seed, what, got, want, strings.Join(r.steps, "\n"))
	}
}

func (r *trial) anyGate() *place { return r.gates[r.rnd.IntN(len(r.gates))] }

// newWaiter is a goroutine that is about to wait at p.
func (r *trial) newWaiter(p *place) *goroutine {
	g := &goroutine{Waiter: NewWaiter[*Tenure](), name: fmt.Sprint(len(r.all)), at: p}
	r.all = append(r.all, g)
	return g
}

// answered: the model answers one that waits.
func (r *trial) answered(g *goroutine, h handoff) {
	r.gone(g)
	g.told = append(g.told, &h)
}

// gone: it waits no more.
func (r *trial) gone(g *goroutine) {
	g.at.waiting = slices.DeleteFunc(g.at.waiting, func(w *goroutine) bool { return w == g })
	g.at = nil
}

// lookAgain: the model has all look again.
func (r *trial) lookAgain(p *place) {
	for _, g := range slices.Clone(p.waiting) {
		r.answered(g, handoff{})
	}
}

// The steps.

func (r *trial) enter() {
	p := r.anyGate()
	r.step("one enters %s", p.name)
	may := p.entries == 0
	r.expect("entered", p.gate.Enter(), may)
	if may {
		p.entries++
	} else if r.rnd.IntN(4) > 0 {
		g := r.newWaiter(p)
		r.step("%s waits there", g.name)
		p.list.Push(g.Waiter)
		p.waiting = append(p.waiting, g)
	}
}

func (r *trial) leave() {
	if p := r.anyGate(); p.entries > 0 {
		r.step("one leaves %s", p.name)
		r.leaves(p)
	}
}

func (r *trial) leaves(p *place) {
	next := p.gate.Leave()
	p.entries--
	admits := p.entries == 0 && len(p.waiting) > 0
	r.expect("admits one", next, admits)
	if admits {
		p.entries = 1
		r.answered(p.waiting[0], handoff{In: true})
	}
}

func (r *trial) withdraw() {
	if len(r.all) == 0 {
		return
	}
	g := r.all[r.rnd.IntN(len(r.all))]
	r.step("%s is withdrawn", g.name)
	waits := g.at != nil
	r.expect("withdrawn", g.Withdraw(), waits)
	if waits {
		r.gone(g)
	}
}

func (r *trial) recheck() {
	p := r.anyGate()
	r.step("those at %s look again", p.name)
	p.list.Recheck()
	r.lookAgain(p)
}

func (r *trial) install() {
	p := r.anyGate()
	r.step("one is installed in %s", p.name)
	p.gate.Install()
	p.entries = 1
}

func (r *trial) clear() {
	p := r.anyGate()
	r.step("%s is cleared, and all look again", p.name)
	p.gate.Clear()
	p.list.Recheck()
	p.entries = 0
	r.lookAgain(p)
}

func (r *trial) inherit() {
	p, from := r.anyGate(), r.anyGate()
	if p == from || p.entries == 0 {
		return
	}
	r.step("%s inherits from %s", p.name, from.name)
	p.gate.Inherit(from.gate)
	if from.entries == 0 {
		return
	}
	p.entries += from.entries
	from.entries = 0
	from.list.Recheck()
	r.lookAgain(from)
}

// move moves all that wait to the one end of another list, or to the other.
func (r *trial) move() {
	from, to := r.anyGate(), r.beside
	if from.entries > 0 && r.rnd.IntN(2) == 0 {
		from, to = to, from
	}
	moved := from.waiting
	from.waiting = nil
	for _, g := range moved {
		g.at = to
	}
	if r.rnd.IntN(2) == 0 {
		r.step("all at %s are appended to %s", from.name, to.name)
		to.list.Append(from.list)
		to.waiting = slices.Concat(to.waiting, moved)
	} else {
		r.step("all at %s are prepended to %s", from.name, to.name)
		to.list.Prepend(from.list)
		to.waiting = slices.Concat(moved, to.waiting)
	}
}

func (r *trial) unshift() {
	if p := r.anyGate(); p.entries > 0 {
		g := r.newWaiter(p)
		r.step("%s waits first at %s", g.name, p.name)
		p.list.Unshift(g.Waiter)
		p.waiting = slices.Insert(p.waiting, 0, g)
	}
}

func (r *trial) queued() {
	if p := r.anyGate(); len(p.waiting) > 0 {
		g := p.waiting[r.rnd.IntN(len(p.waiting))]
		r.step("%s is queued in Redis", g.name)
		g.Queued()
		if len(g.told) == 0 {
			g.told = append(g.told, nil)
		}
	}
}

func (r *trial) listen() {
	if len(r.all) > 0 {
		g := r.all[r.rnd.IntN(len(r.all))]
		r.step("%s listens", g.name)
		r.receive(g)
	}
}

// receive compares what a goroutine was told. There is as much as the last check has found.
func (r *trial) receive(g *goroutine) {
	for _, want := range g.told {
		r.expect(g.name+" is answered", <-g.Ready == Answered, want != nil)
		if want != nil {
			r.expect(g.name+" is told", g.Handoff(), *want)
		}
	}
	g.told = nil
}

// answer is for one goroutine of all, whether it waits or not.
func (r *trial) answer() {
	if len(r.all) > 0 {
		g, h := r.all[r.rnd.IntN(len(r.all))], handoff{Err: errRefused}
		r.step("%s is refused", g.name)
		if g.Answer(h); g.at != nil {
			r.answered(g, h)
		}
	}
}

func (r *trial) refuse() {
	p := r.beside
	if r.rnd.IntN(2) == 0 {
		p = r.anyGate()
	}
	r.step("all at %s are refused", p.name)
	h := handoff{Err: errRefused}
	p.list.Answer(h)
	for _, g := range slices.Clone(p.waiting) {
		r.answered(g, h)
	}
}

func (r *trial) start() {
	if r.grant.state == Held && r.grant.tokens != nil {
		return
	}
	m := grant{first: r.last + 1 + r.rnd.Int64N(5), entries: 1}
	for i := range int64(block) {
		m.tokens = append(m.tokens, m.first+i)
	}
	r.step("a tenure starts with token %d", m.first)
	r.tenure.Start(m.first)
	r.grant, r.last = m, m.first
}

func (r *trial) enterTenure() {
	r.step("the tenure is entered")
	r.tenure.Enter()
	r.grant.entries++
	r.grant.change++
}

// leaveTenure ends one entry of many, which may let another one in.
func (r *trial) leaveTenure() {
	if r.grant.entries == 1 {
		return
	}
	r.step("the tenure is left")
	r.expect("the last leaves", r.tenure.Leave(), false)
	r.grant.entries--
	r.grant.change++
	if r.rnd.IntN(2) == 0 {
		r.step("and entered by the next one")
		r.tenure.Replace()
		r.grant.entries++
	}
}

func (r *trial) use() {
	r.step("the term has a hold")
	r.tenure.Use()
	r.grant.used = true
}

func (r *trial) end() {
	s := Released + State(r.rnd.IntN(3))
	r.step("the tenure is %v", s)
	held := r.grant.state == Held
	r.expect("ended", r.tenure.End(s), held)
	if held {
		r.grant.state = s
	}
}

// passOn: the last of a gate leaves it and the tenure, which is the first waiter's then, or over.
func (r *trial) passOn() {
	p, m := r.anyGate(), &r.grant
	if p.entries != 1 || m.state != Held {
		return
	}
	for m.entries > 1 {
		r.leaveTenure()
	}
	r.step("the last leaves the tenure, and %s", p.name)
	r.expect("the last leaves", r.tenure.Leave(), true)
	m.entries--
	m.change++
	w := p.list.First()
	if w == nil || r.tenure.UsedUp(block) {
		r.step("the tenure is over")
		r.expect("its end", r.tenure.End(Released), true)
		m.state = Released
		r.leaves(p)
		return
	}
	h := handoff{In: true, Tenure: &r.tenure, Token: r.tenure.Token + 1}
	w.Answer(h)
	r.tenure.PassOn()
	p.gate.Install()

	m.tokens = m.tokens[1:]
	m.entries, m.used = 1, false
	h.Token = m.tokens[0]
	r.answered(p.waiting[0], h)
	r.expect("the next token is above all before", h.Token > r.last, true)
	r.last = h.Token
}

// check compares all of the package's state with the model's.
func (r *trial) check() {
	for _, p := range append(r.gates, r.beside) {
		if p.gate != nil {
			r.expect("entries of "+p.name, p.gate.Entries(), p.entries)
			if p.entries == 0 {
				r.expect("waiters that are forgotten at "+p.name, p.list.Len(), 0)
			}
		}
		r.expect("length of the list at "+p.name, p.list.Len(), len(p.waiting))
		w := p.list.First()
		for i, g := range p.waiting {
			r.expect(fmt.Sprintf("%s is at place %d of %s", g.name, i, p.name), w == g.Waiter, true)
			r.expect(g.name+" can be answered without blocking", len(w.Ready) < cap(w.Ready), true)
			w = w.Next()
		}
		r.expect(p.name+" has an end", w == nil, true)
		w = p.list.last
		for _, g := range slices.Backward(p.waiting) {
			r.expect(g.name+" is behind the one before it at "+p.name, w == g.Waiter, true)
			w = w.prev
		}
		r.expect(p.name+" has a beginning", w == nil, true)
	}
	for _, g := range r.all {
		r.expect("number of answers to "+g.name, len(g.Ready), len(g.told))
	}
	t, m := &r.tenure, &r.grant
	r.expect("token", t.Token, m.tokens[0])
	r.expect("first token", t.Token-int64(t.passes), m.first)
	r.expect("used up", t.UsedUp(block), len(m.tokens) == 1)
	r.expect("passed on", t.PassedOn(), len(m.tokens) < block)
	r.expect("entries of the tenure", t.Entries, m.entries)
	r.expect("change", t.Change, m.change)
	r.expect("has had a hold", t.Used(), m.used)
	r.expect("state", t.State(), m.state)
}
