package drive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/proof/explore/keyspace"
	"github.com/lockline/lockline/pubsub"
	"github.com/lockline/lockline/rlock"
)

// sessionName is what the id of a session begins with, as the server sees it. A run gives the sessions of all
// runs the same ids in what the server sees, so that results can be compared.
const sessionName = "Session."

// A process has one session.
type process struct {
	r       *run
	letter  string
	session *rlock.Session

	// run.mu guards the following.
	subscription *subscription // the last one; nil: there was none
	attempts     int           // number of the last attempt that has sent a request
	away         bool          // nothing reaches the server, and nothing comes from there
	closed       bool          // Close was called
	gone         bool          // Close has returned
	slow         bool          // time has passed while a request was in flight
}

// A run lives through one order of steps.
type run struct {
	world     *World
	server    *server
	processes []*process
	actors    []*actor
	began     time.Time
	events    *[]string // nil: they are not kept
	activity  chan struct{}

	mu       sync.Mutex // guards the following, and what processes, actors, requests and subscriptions say
	over     bool       // requests fail
	space    int        // what Redis keeps, by server.content
	requests []*request // that are not answered
	late     []*request // whose senders have gone, and that the server may yet run
	left     Faults
	aliases  [][2]string // of texts that each run draws at random, and what the server sees
	token    int64       // the highest that an actor has had
	excluded int64       // the same of those that exclude all others
	shared   int64       // the token of the last of these that went on as a reader, which others may join
	stalled  time.Duration
	failure  error

	// Names of steps that are not taken while there are others, since another one was taken in their place. So
	// an order in which one request is late is one detour, however much happens before that request.
	postponed map[string]bool
}

// A step is one thing that can happen next. Of one state, no two have the same name.
type step struct {
	name    string
	do      func() // is called with mu held
	regular bool   // nothing goes wrong in it
}

// newRun begins a run in the present bubble.
func newRun(w *World, s *server, clients []*client) *run {
	r := &run{world: w, server: s, began: time.Now(), activity: make(chan struct{}, 1), left: w.Faults,
		postponed: map[string]bool{}}
	r.space = s.number(keyspace.New())
	for i, cast := range w.Cast {
		p := &process{r: r, letter: string(rune('A' + i))}
		clients[i].hook.p.Store(p)
		options := append([]rlock.SessionOption{rlock.WithLogger(slog.New(slog.DiscardHandler))},
			w.Options...)
		var err error
		if p.session, err = rlock.NewSession(clients[i].rdb, options...); err != nil {
			panic(err)
		}
		in := inner.Session(p.session)
		in.Link.Batching = -1
		in.Hub = pubsub.NewHub(p.dial, pubsub.Options{OnReconnect: in.Link.Reconnected})
		r.aliases = append(r.aliases, [2]string{in.ID(), sessionName + p.letter})
		r.processes = append(r.processes, p)
		for n, word := range strings.Fields(cast) {
			a := &actor{name: p.letter + strconv.Itoa(n+1), p: p}
			for _, letter := range []byte(word) {
				u, ok := roles[letter]
				if !ok {
					panic(fmt.Sprintf("drive: world %s: no role %q", w.Name, letter))
				}
				u.letter = letter
				a.uses = append(a.uses, u)
			}
			r.actors = append(r.actors, a)
		}
	}
	for _, p := range r.processes {
		r.warm(p)
	}
	r.space = s.number(keyspace.New())
	return r
}

// warm has a process lock something else, so that its session knows the clock of Redis.
func (r *run) warm(p *process) {
	done := make(chan error, 1)
	go func() {
		_, hold, err := rlock.New(p.session, "warm").Lock(context.Background())
		if err == nil {
			err = hold.Unlock(context.Background())
		}
		done <- err
	}()
	for {
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				panic(err)
			}
			return
		default:
		}
		r.mu.Lock()
		for _, q := range slices.Clone(r.requests) {
			r.execute(q)
			r.answer(q)
		}
		r.mu.Unlock()
	}
}

// The callers of the following must hold mu, unless a comment says otherwise.

// plain replaces the random texts of this run by those that the server sees.
func (r *run) plain(text string) string {
	if len(text) < 20 {
		return text
	}
	for _, a := range r.aliases {
		if strings.Contains(text, a[0]) {
			text = strings.ReplaceAll(text, a[0], a[1])
		}
	}
	return text
}

// real is the opposite of plain.
func (r *run) real(text string) string {
	if !strings.Contains(text, ".") {
		return text
	}
	for _, a := range slices.Backward(r.aliases) { // nonces, whose names have those of sessions, first
		if strings.Contains(text, a[1]) {
			text = strings.ReplaceAll(text, a[1], a[0])
		}
	}
	return text
}

func (r *run) alias(text, plain string) {
	for _, a := range r.aliases {
		if a[0] == text {
			return
		}
	}
	r.aliases = append(r.aliases, [2]string{text, plain})
}

func (r *run) log(format string, args ...any) {
	if r.events != nil {
		*r.events = append(*r.events, fmt.Sprintf(format, args...))
	}
}

func (r *run) fail(format string, args ...any) {
	if r.failure == nil {
		r.failure = fmt.Errorf(format, args...)
		r.log("  WRONG: %v", r.failure)
	}
}

// happened ends a wait for something to happen.
func (r *run) happened() {
	select {
	case r.activity <- struct{}{}:
	default:
	}
}

// progress notes that a call has returned.
func (r *run) progress() { r.stalled = 0 }

func (r *run) answer(q *request) {
	r.remove(q)
	close(q.done)
}

// steps are all that can happen next. The first is what happens if nothing goes wrong.
func (r *run) steps() []step {
	r.checkState()
	all := r.regular()
	waits := len(all) > 0 // it is a choice
	if len(all) == 0 {
		one := r.otherwise()
		if one.name == "" {
			return nil
		}
		all = append(all, one)
	}
	all = append(all, r.faults()...)
	if waits && r.left.Waits > 0 {
		all = append(all, step{name: wait})
	}
	return unique(all)
}

// unique numbers those that have the same name.
func unique(all []step) []step {
	for i := range all {
		same := 1
		for j := range i {
			if name, _, _ := strings.Cut(all[j].name, " #"); name == all[i].name {
				same++
			}
		}
		if same > 1 {
			all[i].name += fmt.Sprintf(" #%d", same)
		}
	}
	return all
}

// regular are the steps without any fault.
func (r *run) regular() (all []step) {
	add := func(name string, do func()) { all = append(all, step{name: name, do: do}) }
	slices.SortStableFunc(r.requests, func(a, b *request) int { return strings.Compare(a.label, b.label) })
	for _, q := range r.requests {
		if q.ran && !q.p.away {
			add("answer "+q.label, func() { r.answer(q) })
		}
	}
	for _, q := range r.requests {
		if !q.ran && !q.p.away {
			add("run "+q.label, func() {
				if r.execute(q); r.world.Prompt {
					r.answer(q)
				}
			})
		}
	}
	for _, p := range r.processes {
		if c := p.subscription; c != nil && !p.away {
			if len(c.wanted) > 0 {
				add("subscribe "+p.letter, c.confirm)
			}
			if len(c.queue) > 0 {
				add("message for "+p.letter, func() { c.deliver(false) })
			}
		}
	}
	for _, a := range r.actors {
		if a.phase == idle {
			all = append(all, a.steps()...)
		}
	}
	for _, a := range r.actors {
		if a.phase != idle {
			all = append(all, a.steps()...)
		}
	}
	all = unique(all)
	possible := map[string]bool{}
	for i := range all {
		all[i].regular, possible[all[i].name] = true, true
	}
	maps.DeleteFunc(r.postponed, func(name string, _ bool) bool { return !possible[name] })
	slices.SortStableFunc(all, func(a, b step) int {
		return int(truth(r.postponed[a.name]) - truth(r.postponed[b.name]))
	})
	return all
}

// wait is the name of the step in which time passes until something happens by itself.
const wait = "wait"

// otherwise is what happens where there is no regular step: time passes, or those come back that were cut
// off. There is nothing if all are done.
func (r *run) otherwise() step {
	away := false
	for _, a := range r.actors {
		if a.phase != finished && !a.p.away {
			return step{name: wait}
		}
		away = away || a.phase != finished
	}
	for _, p := range r.processes {
		if p.away {
			return step{name: "come back " + p.letter, do: func() {
				p.away = false
				if p.subscription != nil {
					p.subscription.end()
				}
			}}
		}
	}
	return step{}
}

// faults are the steps that a world has so many of.
func (r *run) faults() (all []step) {
	add := func(left *int, name string, do func()) {
		if *left > 0 {
			all = append(all, step{name: name, do: func() {
				*left--
				do()
			}})
		}
	}
	left := &r.left
	for _, a := range r.actors {
		if a.phase == locking && !a.canceled && !a.use().tries {
			add(&left.Cancels, a.name+": cancel", func() {
				a.canceled = true
				a.cancel()
			})
		}
	}
	for _, q := range r.requests {
		if !q.p.away {
			add(&left.Cuts, "cut "+q.label, func() { r.drop(q, errCut) })
		}
	}
	for _, q := range slices.Clone(r.late) {
		all = append(all, step{name: "run late " + q.label, do: func() {
			r.late = slices.DeleteFunc(r.late, func(other *request) bool { return other == q })
			r.execute(q)
		}})
	}
	for _, p := range r.processes {
		c := p.subscription
		if p.away || p.closed {
			continue
		}
		if c != nil && len(c.queue) > 0 {
			add(&left.Losses, "lose message for "+p.letter, func() { c.deliver(true) })
		}
		if c != nil && len(c.channels) > 0 {
			add(&left.Breaks, "break subscription of "+p.letter, c.end)
		}
		add(&left.Cutoffs, "cut off "+p.letter, func() {
			p.away = true
			if c != nil {
				c.queue, c.wanted = nil, nil
			}
		})
		add(&left.Closures, "close "+p.letter, func() { r.close(p) })
	}
	return all
}

// longest is how long a wait takes at most.
const longest = 2 * time.Minute

// take takes one of the steps that are possible, and returns when all has come to rest. mu is not held.
func (r *run) take(steps []step, n int) {
	r.mu.Lock()
	s, forced := steps[n], n == 0
	if s.regular {
		for _, passed := range steps[:n] {
			r.postponed[passed.name] = true
		}
		delete(r.postponed, s.name)
	}
	r.log("%s", s.name)
	if s.name != wait {
		s.do()
		r.mu.Unlock()
		synctest.Wait()
		return
	}
	if !forced {
		r.left.Waits--
	}
	for _, q := range r.requests {
		q.p.slow = true
	}
	r.mu.Unlock()
	select {
	case <-r.activity:
	default:
	}
	began := time.Now()
	select {
	case <-r.activity:
	case <-time.After(longest):
	}
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	took := time.Since(began)
	r.log("  %v passed", took)
	if forced {
		r.checkStall(took)
	}
}

// close calls Close of a process's session.
func (r *run) close(p *process) {
	p.closed = true
	go func() {
		began := time.Now()
		err := p.session.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		defer r.happened()
		p.gone = true
		r.log("  Close of %s returns %v after %v", p.letter, err, time.Since(began))
		r.checkClose(p, err, time.Since(began))
	}()
}

// finish lives through the end of a run in which all actors are done. mu is not held.
func (r *run) finish() {
	r.calm(5*time.Second, func() bool { return false })
	r.mu.Lock()
	r.checkRedis()
	for _, p := range r.processes {
		if !p.closed {
			r.close(p)
		}
	}
	r.mu.Unlock()
	synctest.Wait()
	r.calm(20*time.Second, func() bool {
		return !slices.ContainsFunc(r.processes, func(p *process) bool { return !p.gone })
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.processes {
		switch {
		case !p.gone:
			r.fail("Close of %s does not return", p.letter)
		case p.subscription != nil && !p.subscription.ended:
			r.fail("%s is closed, and its subscription is not", p.letter)
		}
	}
	if len(r.requests) > 0 {
		r.fail("a request of a closed session is in flight: %s", r.requests[0].label)
	}
}

// calm takes regular steps until none is possible for so long, or until done. mu is not held.
func (r *run) calm(rest time.Duration, done func() bool) {
	for range 1000 {
		r.mu.Lock()
		if r.failure != nil || done() {
			r.mu.Unlock()
			return
		}
		steps := r.regular()
		r.mu.Unlock()
		if len(steps) > 0 {
			r.take(steps, 0)
			continue
		}
		select {
		case <-r.activity:
		case <-time.After(rest):
			return
		}
		synctest.Wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail("there is no end, though nothing goes wrong any more")
}

var errOver = errors.New("the run is over")

// stop ends all that still runs, in whatever state it is. mu is not held.
func (r *run) stop() {
	r.mu.Lock()
	r.over = true
	r.late = nil
	r.left = Faults{}
	for _, q := range slices.Clone(r.requests) {
		r.drop(q, redis.ErrClosed)
	}
	for _, a := range r.actors {
		if a.cancel != nil {
			a.cancel()
		}
	}
	for _, p := range r.processes {
		p.away = false
		if p.subscription != nil {
			p.subscription.end()
		}
	}
	r.mu.Unlock()
	for _, p := range r.processes {
		_ = p.session.Close()
	}
	synctest.Wait()
	for _, a := range r.actors {
		if a.hold != nil {
			_ = a.hold.Unlock(context.Background())
		}
	}
}

// client is the client of one process in all runs.
type client struct {
	rdb  *redis.Client
	hook *hook
}

func newClient(n int) *client {
	c := &client{hook: &hook{}}
	c.rdb = redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", n+1),
		ContextTimeoutEnabled: true})
	c.rdb.AddHook(c.hook)
	return c
}
