package explore

import (
	"context"
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
	"github.com/lockline/lockline/proof/keyspace"
	"github.com/lockline/lockline/pubsub"
	"github.com/lockline/lockline/rlock"
)

// sessionName is the beginning of a session's id, as the server sees the id. Ids and nonces are random. The
// simulated network replaces ids and nonces by names that are the same in each run, so that the runs can be
// compared.
const sessionName = "Session."

// A process has one session.
type process struct {
	r       *run
	letter  string
	session *rlock.Session

	// run.mu guards the following.
	subscription *subscription // the session's last connection for messages; nil: there was none
	attempts     int           // number of the last attempt that has sent a request
	away         bool          // the process is cut off from the server
	closed       bool          // Close was called
	gone         bool          // Close has returned
	slow         bool          // time has passed while a request of the process was in flight
}

// A run takes the steps of one order, in a bubble of testing/synctest.
type run struct {
	world     *World
	server    *server
	processes []*process
	actors    []*actor
	events    *[]string     // events of the run so far; nil: no events are kept
	activity  chan struct{} // capacity 1; a value ends the step in which time passes

	mu        sync.Mutex // guards the following, and the fields of processes, actors, requests, subscriptions
	over      bool       // the run is being stopped, so all requests fail
	space     int        // the data in Redis, as an index of server.content
	requests  []*request // requests without a reply
	late      []*request // requests that the server may still run, although no sender waits for a reply
	left      Faults     // number of faults that may still happen
	aliases   [][2]string
	token     int64         // highest token of all holds so far
	excluded  int64         // highest token of all exclusive holds so far
	shared    int64         // token of the last writer that became a reader; other readers may share it
	granted   int64         // highest token of all grants of Redis
	lost      []lostGrant   // grants that an operator has ended, or whose keys an operator has deleted
	limit     int64         // number of permits
	setBack   time.Duration // time by which the clock of the server was set back
	keys      []string      // keys of the lock; nil: no session has sent an acquire request yet
	channels  string        // beginning of the names of all sessions' channels
	retention string        // milliseconds for which Redis keeps the hash after the lease
	stalled   time.Duration
	failure   error

	// Names of regular steps that a detour has passed over. They come after all other regular steps.
	postponed map[string]bool
}

// A step is one of the things that can happen next. The names of the steps of a state differ.
type step struct {
	name    string
	do      func() // called with run.mu held; nil: time passes
	regular bool   // the step is neither a fault nor the passage of time
}

// newRun starts the sessions of a world, in the present bubble.
func newRun(w *World, s *server, clients []*client) *run {
	r := &run{world: w, server: s, activity: make(chan struct{}, 1), left: w.Faults,
		postponed: map[string]bool{}, limit: int64(w.kind.limit)}
	r.space = s.number(keyspace.New())
	for i, cast := range w.Cast {
		p := &process{r: r, letter: string(rune('A' + i))}
		clients[i].hook.p.Store(p)
		options := append([]rlock.SessionOption{rlock.WithLogger(slog.New(slog.DiscardHandler))},
			w.Options...)
		if w.Lingers {
			options = append(options, rlock.WithLinger(100*time.Millisecond))
		}
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
				one, ok := roles[letter]
				if !ok {
					panic(fmt.Sprintf("explore: world %s: there is no role %q", w.Name, letter))
				}
				one.letter = letter
				a.roles = append(a.roles, one)
			}
			r.actors = append(r.actors, a)
		}
	}
	for _, p := range r.processes {
		r.warm(p)
	}
	r.space, r.keys, r.granted = s.number(keyspace.New()), nil, 0
	return r
}

// warm locks and unlocks another lock in the session of a process, so that the session knows the clock of
// Redis.
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

// plain replaces the random texts of this run by names. The caller must hold run.mu.
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

// original replaces the names by the random texts again. The caller must hold run.mu.
func (r *run) original(text string) string {
	for _, a := range slices.Backward(r.aliases) { // nonces first, as their names contain session names
		if strings.Contains(text, a[1]) {
			text = strings.ReplaceAll(text, a[1], a[0])
		}
	}
	return text
}

// alias gives a random text a name. The caller must hold run.mu.
func (r *run) alias(text, name string) {
	for _, a := range r.aliases {
		if a[0] == text {
			return
		}
	}
	r.aliases = append(r.aliases, [2]string{text, name})
}

// log keeps an event. The caller must hold run.mu.
func (r *run) log(format string, args ...any) {
	if r.events != nil {
		*r.events = append(*r.events, fmt.Sprintf(format, args...))
	}
}

// fail records that a promise is broken. Only the first failure of a run is kept. The caller must hold
// run.mu.
func (r *run) fail(format string, args ...any) {
	if r.failure == nil {
		r.failure = fmt.Errorf(format, args...)
		r.log("  WRONG: %v", r.failure)
	}
}

// happened ends the step in which time passes, if the run is in such a step.
func (r *run) happened() {
	select {
	case r.activity <- struct{}{}:
	default:
	}
}

// answer delivers the replies to a request that the server has run. The caller must hold run.mu.
func (r *run) answer(q *request) {
	r.remove(q)
	close(q.done)
}

// steps returns the steps of the present state, the preferred one first. It returns none if all actors are
// done, nothing is in flight, and no session is cut off. The caller must hold run.mu.
func (r *run) steps() []step {
	r.checkState()
	r.checkRoom()
	all := r.regular()
	choice := len(all) > 0
	if !choice {
		one := r.otherwise()
		if one.name == "" {
			return nil
		}
		all = append(all, one)
	}
	all = append(all, r.faults()...)
	if choice && r.left.Waits > 0 {
		all = append(all, step{name: wait})
	}
	return unique(all)
}

// unique adds numbers to the names of steps, so that the names differ.
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

// regular returns the steps that are no faults, except for the step in which time passes. Postponed steps
// come last. The caller must hold run.mu.
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
			add("run "+q.label, func() { r.execute(q) })
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
	for _, a := range r.actors { // calls of Lock come before calls of Unlock, so that the lock is contended
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

// otherwise returns the preferred step of a state that has no regular step. While a session that is not cut
// off has actors that are not done, this is the step in which time passes. After that, a session that was cut
// off comes back. If there is no such session, either, the function returns the zero step. The caller must
// hold run.mu.
func (r *run) otherwise() step {
	for _, a := range r.actors {
		if a.phase != finished && !a.p.away {
			return step{name: wait}
		}
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

// faults returns the faults that may still happen in this run, see Faults. The caller must hold run.mu.
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
		if a.phase == locking && !a.canceled && !a.role().tries {
			add(&left.Cancels, a.name+": cancel", func() {
				a.canceled, a.leftAt = true, time.Now()
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
	r.operator(add)
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

// longestWait is the longest time that passes in one step.
const longestWait = 2 * time.Minute

// take takes the step steps[n], and returns when all goroutines have come to rest. The caller must not hold
// run.mu.
func (r *run) take(steps []step, n int) {
	r.mu.Lock()
	s, chosen := steps[n], n > 0
	if s.regular {
		for _, passed := range steps[:n] {
			r.postponed[passed.name] = true
		}
		delete(r.postponed, s.name)
	}
	r.log("%s", s.name)
	if s.do != nil {
		s.do()
		r.mu.Unlock()
		synctest.Wait()
		return
	}
	if chosen {
		r.left.Waits--
	}
	for _, q := range r.requests {
		q.p.slow = true
	}
	r.mu.Unlock()
	select {
	case <-r.activity: // an activity from before this step
	default:
	}
	began := time.Now()
	select {
	case <-r.activity:
	case <-time.After(longestWait):
	}
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	took := time.Since(began)
	r.log("  %v passed", took)
	if !chosen {
		r.checkStall(took)
	}
}

// close calls Close of a session in a new goroutine. The caller must hold run.mu.
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

// finish closes the sessions of a run in which all actors are done, and checks that nothing is left. The
// caller must not hold run.mu.
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

// calm takes regular steps until done returns true, the run has failed, or nothing has happened for the time
// rest. The caller must not hold run.mu.
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
	r.fail("the sessions do not come to rest, although nothing goes wrong any more")
}

// stop ends all goroutines of the run, in any state. The caller must not hold run.mu.
func (r *run) stop() {
	r.mu.Lock()
	r.over, r.late, r.left = true, nil, Faults{}
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
		if a.hold != nil { // otherwise the garbage collector reports a forgotten Hold
			_ = a.hold.Unlock(context.Background())
		}
	}
}

// A client is the go-redis client of one process. All runs use the same clients.
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
