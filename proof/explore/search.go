package explore

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// A Step is an event that can happen in a state. All steps of a state differ.
type Step struct {
	What   string // a verb such as "tick", "execute" or "lose"
	Who    int    // an actor or a session, or -1
	Packet string // name of a packet of the network, or ""
	Which  int    // tells equal steps of a state apart
}

func (s Step) String() string {
	text := s.What
	if s.Who >= 0 {
		text += fmt.Sprintf(" %d", s.Who)
	}
	if s.Packet != "" {
		text += ": " + s.Packet
	}
	if s.Which > 0 {
		text += fmt.Sprintf(" (%d)", 1+s.Which)
	}
	return text
}

// A world is a graph of states. A state is a text, which is equal for states with the same behavior.
type world interface {
	start() string
	// steps calls yield with each step of a state, always in the same order, until yield returns false. The
	// step leads to next, and may violate a guarantee.
	steps(state string, yield func(n int, next string, violation error) bool)
	// calm makes the only step of a world without faults in which no actor begins. over means that there is
	// no step left. Then violation is nil if the state is a correct end.
	calm(state string) (next string, over bool, violation error)
	// describe returns the steps of a state, in their order.
	describe(state string) []Step
	// repeat takes steps on a real server.
	repeat(l *live, steps []Step) (violation error, diverged bool)
}

// Result is the result of an exploration.
type Result struct {
	States    int // number of states
	Steps     int // number of steps between them
	Calm      int // number of further states on the calm ways from these to an end
	Depth     int // steps from the start to the last state
	Complete  bool
	Took      time.Duration
	Violation error  // nil if there is none
	Trace     []Step // shortest way to the violation
	InCalm    int    // number of calm steps from there to the violation
}

func (r Result) String() string {
	whole := "all of them"
	if !r.Complete {
		whole = "and there are more"
	}
	return fmt.Sprintf("%d states, %s, %d steps, %d deep, %d calm states behind, in %v",
		r.States, whole, r.Steps, r.Depth, r.Calm, r.Took.Round(10*time.Millisecond))
}

// Story returns the steps that lead to the violation, and the violation.
func (r Result) Story() string {
	var b strings.Builder
	for i, step := range r.Trace {
		fmt.Fprintf(&b, "%3d %v\n", i+1, step)
	}
	if r.InCalm > 0 {
		fmt.Fprintf(&b, "and %d calm steps\n", r.InCalm)
	}
	fmt.Fprintf(&b, "    %v", r.Violation)
	return b.String()
}

// fingerprint identifies a state. The probability that two of 10^8 states have the same one is 10^-22.
type fingerprint [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func fingerprintOf(state string) fingerprint {
	return fingerprint{maphash.String(seeds[0], state), maphash.String(seeds[1], state)}
}

// origin is the step by which a state was first reached.
type origin struct {
	from uint32
	step uint16
}

// longestCalm is the largest number of calm steps to an end.
const longestCalm = 2000

// search visits the states of a world in breadth-first order, until the first violation or until it has seen
// most states. From each state, calm steps must lead to a correct end.
func search(w world, most int) Result {
	began := time.Now()
	r := Result{Complete: true}
	seen := map[fingerprint]struct{}{}
	origins := []origin{{}}
	calm := map[fingerprint]struct{}{} // states that lead to a correct end
	queue := []string{w.start()}
	seen[fingerprintOf(queue[0])] = struct{}{}
	layer := 1 // number of states in the queue with the depth of the first
	fail := func(state uint32, step int, violation error) {
		r.Violation = violation
		var last string
		r.Trace, last = trace(w, origins, state)
		if step >= 0 {
			r.Trace = append(r.Trace, w.describe(last)[step])
		}
	}
	for at := uint32(0); len(queue) > 0 && r.Violation == nil; at++ {
		state := queue[0]
		queue[0] = ""
		queue = queue[1:]
		if n, violation := settle(w, state, calm); violation != nil {
			fail(at, -1, violation)
			r.InCalm = n
			break
		}
		w.steps(state, func(n int, next string, violation error) bool {
			r.Steps++
			if violation != nil {
				fail(at, n, violation)
				return false
			}
			f := fingerprintOf(next)
			if _, known := seen[f]; known {
				return true
			}
			if len(seen) >= most {
				r.Complete = false
				return true
			}
			seen[f] = struct{}{}
			origins = append(origins, origin{at, uint16(n)})
			queue = append(queue, next)
			return true
		})
		if layer--; layer == 0 && len(queue) > 0 {
			layer = len(queue)
			r.Depth++
		}
	}
	r.States, r.Calm, r.Took = len(seen), len(calm), time.Since(began)
	return r
}

// settle makes calm steps until the end, or until a state that is known to lead there.
func settle(w world, state string, good map[fingerprint]struct{}) (steps int, violation error) {
	var passed []fingerprint
	for ; ; steps++ {
		next, over, violation := w.calm(state)
		switch {
		case violation != nil:
			return steps, violation
		case steps == longestCalm:
			return steps, fmt.Errorf("no end, though nothing goes wrong any more")
		}
		if steps > 0 { // the state itself is in seen
			f := fingerprintOf(state)
			if _, ok := good[f]; ok {
				over = true
			}
			passed = append(passed, f)
		}
		if over {
			for _, f := range passed {
				good[f] = struct{}{}
			}
			return steps, nil
		}
		state = next
	}
}

// trace returns a state by its number, and the steps by which it was reached.
func trace(w world, origins []origin, number uint32) (steps []Step, state string) {
	var numbers []uint16
	for number != 0 {
		numbers = append(numbers, origins[number].step)
		number = origins[number].from
	}
	state = w.start()
	for _, n := range slices.Backward(numbers) {
		steps = append(steps, w.describe(state)[n])
		w.steps(state, func(i int, next string, _ error) bool {
			if i == int(n) {
				state = next
			}
			return i != int(n)
		})
	}
	return steps, state
}
