package watchdog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A life is the state of one Add in the model.
type life struct {
	granted time.Time // the latest deadline that reached the watchdog in time
	gone    time.Time // time at which a server replied that the lease is gone; zero: never
	steady  bool      // on a healthy server, and always renewed: must not end by itself
}

// world is a Keeper that answers at random and checks each call against a model. Each event
// happens at another random nanosecond, so the order of events is never in doubt.
type world struct {
	t *testing.T
	w *Watchdog

	mu     sync.Mutex // guards the fields below; held around calls of w, which holds no mutex in callbacks
	rnd    *rand.Rand
	alive  map[*Lease]*life
	calm   bool // every renewal fails: to come to an end
	ended  map[string]int
	over   map[*Lease]time.Time // when the last life ended
	flying map[*Lease]int
	most   int
}

func (o *world) Server(l *Lease) any { return l.Owner }

func (o *world) Renew(ctx context.Context, server any, batch []*Lease) []Result {
	o.mu.Lock()
	asked := time.Now()
	lives := make([]*life, len(batch))
	for i, l := range batch {
		lives[i] = o.alive[l]
		// A reply may end a lease in the instant in which a renewal of it leaves: contexts end with a
		// deadline, which is 3 s after one slot, and so at another one.
		if same := o.over[l].Equal(asked); !same && (lives[i] == nil || !asked.Before(lives[i].granted)) {
			o.t.Errorf("a renewal left for a lease that had ended: %+v", lives[i])
		}
		if l.Owner != server {
			o.t.Errorf("a lease of server %v travelled to %v", l.Owner, server)
		}
		o.flying[l]++
		o.most = max(o.most, o.flying[l])
	}
	kind, pause := o.rnd.IntN(10), time.Duration(o.rnd.Int64N(int64(20*time.Millisecond)))
	if kind == 0 && server != "healthy" { // hangs
		pause = time.Duration(o.rnd.Int64N(int64(6 * time.Second)))
	}
	heeds := o.rnd.IntN(2) == 0
	o.mu.Unlock()

	if heeds {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	} else {
		time.Sleep(pause)
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	results := make([]Result, len(batch))
	for i, l := range batch {
		o.flying[l]--
		switch n := o.rnd.IntN(100); {
		case o.calm:
			results[i].Err = errRefused
		case server == "healthy" || n < 60:
			results[i].Deadline = asked.Add(3 * time.Second)
		case n < 97:
			results[i].Err = errRefused
		default:
			results[i].Gone = true
		}
		v := lives[i]
		if v == nil || o.alive[l] != v || !now.Before(v.granted) || !v.gone.IsZero() {
			continue // comes too late to count
		}
		switch r := results[i]; {
		case r.Gone:
			v.gone = now
		case r.Deadline.After(v.granted):
			v.granted = r.Deadline
		}
	}
	return results
}

func (o *world) Lost(l *Lease, deadlinePassed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, now := o.alive[l], time.Now()
	switch {
	case v == nil:
		o.t.Error("Lost for a lease that had ended")
		return
	case deadlinePassed && !now.Equal(v.granted):
		o.t.Errorf("ended by deadline %v after what was granted", now.Sub(v.granted))
	case !deadlinePassed && !now.Equal(v.gone):
		o.t.Errorf("ended as gone at %v; the server said so at %v", now, v.gone)
	case v.steady && !o.calm:
		o.t.Error("lost although its server was healthy")
	}
	delete(o.alive, l)
	o.over[l] = now
	o.ended[map[bool]string{true: "deadline", false: "gone"}[deadlinePassed]]++
}

func (o *world) Failed(*Lease, error) {}

// act does one random thing to l, or puts another one in its place that is added.
func (o *world) act(l **Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.alive[*l]
	if v == nil {
		*l = &Lease{Owner: (*l).Owner}
		v = &life{granted: time.Now().Add(time.Duration(50+o.rnd.Int64N(3000)) * time.Millisecond),
			steady: (*l).Owner == "healthy"}
		every := time.Second
		if !v.steady && o.rnd.IntN(5) == 0 {
			every = 0
		}
		o.alive[*l] = v
		if !o.w.Add(*l, v.granted, every) {
			o.t.Error("Add = false")
		}
		return
	}
	switch o.rnd.IntN(5) {
	case 0:
		if !o.w.Remove(*l) {
			o.t.Error("Remove = false for a lease that was kept")
		}
		delete(o.alive, *l)
		o.ended["removed"]++
	case 1:
		d := time.Now().Add(time.Duration(o.rnd.Int64N(int64(4 * time.Second))))
		o.w.Extend(*l, d)
		if d.After(v.granted) {
			v.granted = d
		}
	case 2:
		if !v.steady {
			o.w.SetInterval(*l, time.Duration(o.rnd.IntN(3))*700*time.Millisecond)
		}
	default:
		if d := o.w.Deadline(*l); !d.Equal(v.granted) {
			o.t.Errorf("Deadline = %v, want %v", d, v.granted)
		}
	}
}

func TestWhateverServersAndCallersDoALeaseLivesExactlyAsLongAsItWasGranted(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), alive: map[*Lease]*life{},
					ended: map[string]int{},
					over:  map[*Lease]time.Time{}, flying: map[*Lease]int{}}
				o.w = New(o)
				leases := make([]*Lease, 60)
				servers := []string{"healthy", "a", "b", "c"}
				for i := range leases {
					leases[i] = &Lease{Owner: servers[i%len(servers)]}
				}
				for range 5_000 {
					o.mu.Lock()
					l, pause := &leases[o.rnd.IntN(len(leases))],
						time.Duration(o.rnd.Int64N(int64(30*time.Millisecond)))
					o.mu.Unlock()
					time.Sleep(pause)
					o.act(l)
				}
				o.mu.Lock()
				o.calm = true
				o.mu.Unlock()
				pass(10 * time.Second)
				if len(o.alive) != 0 || o.w.Len() != 0 {
					t.Errorf("%d leases outlived their deadlines, %d are kept", len(o.alive), o.w.Len())
				}
				if o.ended["deadline"] < 20 || o.ended["gone"] < 20 || o.ended["removed"] < 20 {
					t.Errorf("too tame a run: %v", o.ended)
				}
				t.Logf("ended: %v; most renewals out for one lease: %d", o.ended, o.most)
				o.w.Close()
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// In real time, for the race detector.
func TestManyGoroutinesMayUseAWatchdogWhileItTicksAndCloses(t *testing.T) {
	f := newFake()
	f.server = func(l *Lease) any { return l.Owner }
	w := New(f)
	var users sync.WaitGroup
	for n := range 4 {
		users.Go(func() {
			for until := in(100 * time.Millisecond); time.Now().Before(until); {
				leases := make([]Lease, 50)
				for i := range leases {
					l := &leases[i]
					l.Owner = n % 2
					if !w.Add(l, in(time.Duration(1+i)*time.Millisecond),
						time.Duration(i%8)*time.Millisecond) {
						return
					}
				}
				for i := range leases {
					l := &leases[i]
					w.Extend(l, in(time.Second))
					w.SetInterval(l, time.Millisecond)
					_, _ = w.Deadline(l), w.Len()
					time.Sleep(50 * time.Microsecond)
					w.Remove(l)
				}
			}
		})
	}
	time.Sleep(80 * time.Millisecond)
	w.Close()
	users.Wait()
	if w.Len() != 0 {
		t.Errorf("%d leases kept after Close", w.Len())
	}
}
