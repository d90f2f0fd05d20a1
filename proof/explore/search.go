package explore

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/handle"
)

// A Result is the result of an exploration.
type Result struct {
	States   int // number of different states
	Runs     int
	Steps    int  // number of steps of all runs, including the steps that repeat an earlier run
	Depth    int  // number of steps of the longest run
	Diverged int  // number of runs in which a step of an earlier run was not possible any more
	Complete bool // all orders within the bounds were tried
	Took     time.Duration
	Failure  error    // the first failure, such as a broken promise; nil: there was none
	Path     []string // names of the steps that lead to the failure
	Events   []string // steps with their requests, replies and results; only Replay sets Events
}

func (r Result) String() string {
	whole := "all of them"
	if !r.Complete {
		whole = "and there are more"
	}
	return fmt.Sprintf("%d states, %s, %d runs, %d steps, %d deep, %d diverged, in %v",
		r.States, whole, r.Runs, r.Steps, r.Depth, r.Diverged, r.Took.Round(10*time.Millisecond))
}

// A fork is a state on the path of the present run.
type fork struct {
	steps   []string // names of the steps that the explorer tries in this state
	next    int      // index of the step that the present run takes
	detours int      // number of detours that are left in this state
}

// An explorer makes runs until it has tried all orders. It searches the tree of orders depth first. A run
// repeats the steps of the run before up to the last fork that has an untried step, and takes this step. Then
// the run takes the preferred step of each state, until all actors are done or the run reaches a state that
// was visited before.
type explorer struct {
	t       *testing.T
	world   *World
	server  *server
	clients []*client
	seen    map[fingerprint]int // visited states, with the largest number of detours that were left in them
	path    []fork
	result  Result
	events  *[]string
}

// unbounded is the number of detours of a world without a bound.
const unbounded = 1 << 30

func newExplorer(t *testing.T, w *World, text func(name string) string) *explorer {
	e := &explorer{t: t, world: w, server: newServer(text), seen: map[fingerprint]int{}}
	for i := range w.Cast {
		e.clients = append(e.clients, newClient(i))
	}
	return e
}

func (e *explorer) close() {
	for _, c := range e.clients {
		_ = c.rdb.Close()
	}
}

// Explore tries all orders of a world. It stops at the first failure, after it has visited as many states as
// most says, or after the time atMost. The function text returns the text of a script. It is script.Text, or
// a function that returns some scripts with a mistake.
func Explore(t *testing.T, w World, text func(name string) string, most int, atMost time.Duration) Result {
	e := newExplorer(t, &w, text)
	defer e.close()
	began := time.Now()
	for len(e.seen) < most && time.Since(began) < atMost {
		e.once()
		if e.result.Failure != nil {
			break
		}
		if !e.back() {
			e.result.Complete = true
			break
		}
	}
	e.result.States, e.result.Took = len(e.seen), time.Since(began)
	return e.result
}

// once makes one run, which begins with the steps of e.path.
func (e *explorer) once() {
	e.result.Runs++
	e.bubble(func(r *run) {
		for depth := 0; ; depth++ {
			steps, done := e.look(r)
			if done {
				return
			}
			var name string
			switch {
			case depth < len(e.path):
				name = e.path[depth].steps[e.path[depth].next]
			default:
				detours := unbounded
				if depth > 0 {
					before := &e.path[depth-1]
					if detours = before.detours; before.next > 0 {
						detours--
					}
				} else if e.world.Detours > 0 {
					detours = e.world.Detours
				}
				f := r.fingerprint()
				if left, ok := e.seen[f]; ok && left >= detours {
					return
				}
				e.seen[f] = detours
				fork := fork{detours: detours}
				for _, s := range steps {
					fork.steps = append(fork.steps, s.name)
					if detours == 0 {
						break
					}
				}
				e.path = append(e.path, fork)
				name = fork.steps[0]
			}
			e.result.Steps++
			e.result.Depth = max(e.result.Depth, depth+1)
			if !r.takeNamed(steps, name) {
				e.result.Diverged++
				e.path = e.path[:depth+1]
				return
			}
			if depth > 1000 {
				r.mu.Lock()
				r.fail("there is no end")
				r.mu.Unlock()
			}
		}
	})
}

// look returns the steps of the present state. If done is true, the run has ended. Either the run has failed,
// or all actors were done, and look has called finish.
func (e *explorer) look(r *run) (steps []step, done bool) {
	r.mu.Lock()
	steps = r.steps()
	failed := r.failure != nil
	r.mu.Unlock()
	if failed {
		return nil, true
	}
	if len(steps) == 0 {
		r.finish()
		return nil, true
	}
	return steps, false
}

// takeNamed takes the step with this name. It returns false if no step has this name.
func (r *run) takeNamed(steps []step, name string) bool {
	for i, s := range steps {
		if s.name == name {
			r.take(steps, i)
			return true
		}
	}
	return false
}

// bubble starts a run in a bubble of its own, calls live, stops the run, and keeps the failure. A goroutine
// that remains in the bubble is a failure, too.
func (e *explorer) bubble(live func(r *run)) {
	defer func() {
		if p := recover(); p != nil {
			e.result.Failure = fmt.Errorf("panic: %v", p)
			e.keep()
		}
	}()
	synctest.Test(e.t, func(*testing.T) {
		end := handle.KeepAll()
		defer end()
		r := newRun(e.world, e.server, e.clients)
		r.events = e.events
		synctest.Wait()
		live(r)
		if r.failure != nil {
			e.result.Failure = r.failure
			e.keep()
		}
		r.stop()
	})
}

// keep stores e.path as the path of the failure, unless the result has a path already.
func (e *explorer) keep() {
	if e.result.Path == nil {
		for _, f := range e.path {
			e.result.Path = append(e.result.Path, f.steps[f.next])
		}
	}
}

// back cuts e.path after the last fork that has an untried step, and selects this step. It returns false if
// no fork has one.
func (e *explorer) back() bool {
	for n := len(e.path); n > 0; n = len(e.path) {
		if f := &e.path[n-1]; f.next+1 < len(f.steps) {
			f.next++
			return true
		}
		e.path = e.path[:n-1]
	}
	return false
}

// Simplest explores w with 1 detour, then with 2 and so on, as long as they are fewer than w.Detours. It
// returns the result of the first of these explorations that fails. It returns r if none of them fails.
func Simplest(t *testing.T, w World, text func(name string) string, r Result) Result {
	for detours := 1; detours < w.Detours; detours++ {
		few := w
		few.Detours = detours
		if simpler := Explore(t, few, text, r.States, r.Took+time.Second); simpler.Failure != nil {
			return simpler
		}
	}
	return r
}

// Replay makes one run. The run takes the steps with the names in path, and then the preferred step of each
// state. The result has all events. It has a Failure if a promise is broken, or if a step of path is not
// possible.
func Replay(t *testing.T, w World, text func(name string) string, path []string) Result {
	e := newExplorer(t, &w, text)
	defer e.close()
	e.events = &e.result.Events
	e.result.Path = path
	e.bubble(func(r *run) {
		for depth := 0; ; depth++ {
			steps, done := e.look(r)
			if done {
				return
			}
			name := steps[0].name
			if depth < len(path) {
				name = path[depth]
			}
			if !r.takeNamed(steps, name) {
				r.mu.Lock()
				r.fail("step %d, %q, is not possible here; possible: %s", depth+1, name, list(steps))
				r.mu.Unlock()
				return
			}
		}
	})
	return e.result
}

// list returns the names of steps.
func list(steps []step) string {
	var all []string
	for _, s := range steps {
		all = append(all, s.name)
	}
	return strings.Join(all, "; ")
}
