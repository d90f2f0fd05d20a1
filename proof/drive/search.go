package drive

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/handle"
)

// A Result is what an exploration found.
type Result struct {
	States   int // that were reached
	Runs     int
	Steps    int // that were taken, with those that repeat an earlier run
	Depth    int // steps of the longest run
	Diverged int // runs that could not repeat the steps of an earlier one
	Complete bool
	Took     time.Duration
	Failure  error // nil: no promise was broken
	Path     []string
	Events   []string
}

func (r Result) String() string {
	whole := "all of them"
	if !r.Complete {
		whole = "and there are more"
	}
	return fmt.Sprintf("%d states, %s, %d runs, %d steps, %d deep, %d diverged, in %v",
		r.States, whole, r.Runs, r.Steps, r.Depth, r.Diverged, r.Took.Round(10*time.Millisecond))
}

// Story is the failure, with the steps that lead to it.
func (r Result) Story() string {
	return fmt.Sprintf("%s\n    %v", strings.Join(r.Events, "\n"), r.Failure)
}

// A fork is a state on the way of the present run, with the steps that it has.
type fork struct {
	steps   []string
	next    int // index of the step of the present run
	detours int // how many are left
}

type explorer struct {
	t       *testing.T
	world   *World
	server  *server
	clients []*client
	seen    map[fingerprint]int // and how many detours were left
	path    []fork
	result  Result
	events  *[]string
}

// unbounded is how many detours there are where the world has no bound.
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

// Explore tries all orders of a world, or stops when it has seen so many states, or after so long, or at the
// first failure. text is script.Text, or a function that breaks scripts.
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

// once makes a run.
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

// look returns the steps of a state. done: there is nothing more to do in this run, which may have failed.
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

func (r *run) takeNamed(steps []step, name string) bool {
	for i, s := range steps {
		if s.name == name {
			r.take(steps, i)
			return true
		}
	}
	return false
}

// bubble makes a run in a bubble of its own, and takes in its failure.
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

func (e *explorer) keep() {
	if e.result.Path == nil {
		for _, f := range e.path {
			e.result.Path = append(e.result.Path, f.steps[f.next])
		}
	}
}

// back goes back to the last state that has another step. It returns false if there is none.
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

// Replay takes steps by their names, and then the first of those that are possible until the end. Its result
// has all events. It fails if a step is not possible.
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

func list(steps []step) string {
	var all []string
	for _, s := range steps {
		all = append(all, s.name)
	}
	return strings.Join(all, "; ")
}
