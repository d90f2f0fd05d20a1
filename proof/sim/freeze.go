package sim

import (
	"math/rand/v2"
	"time"
)

// freeze stops a process for up to three leases, mostly while it holds a lock. In half of the cases, the
// process is first stopped several times for moments, and continues in between. Its goroutines do nothing all
// that time, and do not look at their contexts. Unlike the timers of a process that is really stopped, its
// timers fire in this time.
func (w *world) freeze(p *process, rnd *rand.Rand) {
	var stops, runs []time.Duration
	var all time.Duration
	if rnd.IntN(4) != 0 {
		for range 100 {
			if w.holds(p) {
				break
			}
			w.sleep(10 * time.Millisecond)
		}
	}
	if rnd.IntN(2) == 0 {
		for range 1 + rnd.IntN(16) { // shorter than the client's timeouts, so that replies come late
			stops = append(stops, upTo(rnd, 140*time.Millisecond, 280*time.Millisecond))
			runs = append(runs, upTo(rnd, 10*time.Millisecond, 100*time.Millisecond))
		}
	}
	stops, runs = append(stops, upTo(rnd, lease, 2*lease, 3*lease)), append(runs, 0)
	for i := range stops {
		all += stops[i] + runs[i]
	}
	w.say("%s is frozen for %v, with pauses, and goes on in %v", p.name, stops, all)
	w.counts.Add("processes frozen")
	p.still.Store(time.Now().Add(all).UnixNano())
	for i, d := range stops {
		for _, h := range p.hosts {
			h.Freeze(d)
		}
		w.sleep(d + runs[i])
	}
	w.say("%s goes on", p.name)
}

// holds reports whether a goroutine of a process is in a critical section.
func (w *world) holds(p *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.locks {
		for e := range l.considered {
			if e.p == p && e.valid() {
				return true
			}
		}
	}
	return false
}

// thawed waits until the process is not stopped.
func (w *world) thawed(p *process) {
	for {
		d := time.Until(time.Unix(0, p.still.Load()))
		if d <= 0 {
			return
		}
		w.sleep(d)
	}
}
