package docs

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// optionTable reads the table of options in the documentation of package rlock. It returns the names of the
// columns, and for each option the cells of its row.
func optionTable(t *testing.T) (columns []string, cells map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("../rlock/doc.go")
	testlock.Must(t, err)
	_, section, _ := strings.Cut(string(text), "\n// # Options\n")
	section, _, _ = strings.Cut(section, "\n// # ")
	cells = map[string][]string{}
	for line := range strings.Lines(section) {
		row, found := strings.CutPrefix(line, "//\t")
		switch words := strings.Fields(row); {
		case !found:
		case columns == nil:
			columns = words
		case len(words) != 1+len(columns):
			t.Errorf("not a row of %d cells: %s", 1+len(columns), line)
		default:
			cells[words[0]] = words[1:]
		}
	}
	return columns, cells
}

// optionsOf returns the documentation of the functions of package rlock that return one of these types, by
// their names.
func optionsOf(t *testing.T, types ...string) map[string]string {
	t.Helper()
	docs := map[string]string{}
	file, err := parser.ParseFile(token.NewFileSet(), "../rlock/options.go", nil, parser.ParseComments)
	testlock.Must(t, err)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Type.Results == nil {
			continue
		}
		of, ok := f.Type.Results.List[0].Type.(*ast.Ident)
		if ok && slices.Contains(types, of.Name) {
			docs[f.Name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
	}
	return docs
}

// A process takes the lock of one kind. In the columns of elections and latches, it takes a leadership, or
// sets the count of a latch.
type process struct {
	take      func(ctx context.Context, options ...rlock.Option) (release func(), err error)
	wait      func(ctx context.Context) // until another process releases the lock, or ctx ends
	remaining func() time.Duration      // time left of the lease in Redis; 0: not held
}

// optionWorld has the servers for one cell of the table.
type optionWorld struct {
	t     *testing.T
	wires []*testlock.Wire
	kind  string // name of the column
}

func newOptionWorld(t *testing.T, kind string) *optionWorld {
	w := &optionWorld{t: t, kind: kind}
	for range map[bool]int{true: 3, false: 1}[kind == "RedLock"] {
		w.wires = append(w.wires, testlock.NewWire(t))
	}
	return w
}

// process returns a process whose sessions have these options.
func (w *optionWorld) process(options ...rlock.SessionOption) process {
	return w.processWith(nil, options)
}

// with returns a process that takes the lock with an option. In the column "member", the member of a
// MultiLock has the option. In other columns, the call that takes the lock has it.
func (w *optionWorld) with(option rlock.Option) process {
	if w.kind == "member" {
		return w.processWith([]rlock.Option{option}, nil)
	}
	p := w.process()
	take := p.take
	p.take = func(ctx context.Context, _ ...rlock.Option) (func(), error) { return take(ctx, option) }
	return p
}

func (w *optionWorld) processWith(member []rlock.Option, options []rlock.SessionOption) process {
	var sessions []*rlock.Session
	for _, wire := range w.wires {
		sessions = append(sessions, testlock.NewSession(w.t, wire.Client, options...))
	}
	s := sessions[0]
	switch w.kind {
	case "rlock":
		return w.locker(rlock.New(s, "x"), rlock.New(s, "x"))
	case "fairlock":
		return w.locker(fairlock.New(s, "x"), fairlock.New(s, "x"))
	case "rwlock":
		return w.locker(rwlock.New(s, "x"), rwlock.New(s, "x"))
	case "semaphore":
		return w.locker(semaphore.New(s, "x", 1).Locker(1), semaphore.New(s, "x", 1))
	case "redisson":
		return w.locker(redisson.New(s, "x"), redisson.New(s, "x"))
	case "RedLock":
		return w.locker(testlock.RedLock("x", sessions...), testlock.RedLock("x", sessions...))
	case "MultiLock", "member":
		return w.locker(multilock.New(rlock.New(s, "x", member...), rlock.New(s, "y")), rlock.New(s, "x"))
	case "election":
		return w.candidate(election.New(s, "x"))
	case "latch":
		return w.party(latch.New(s, "x"))
	}
	w.t.Fatalf("there is no kind %s", w.kind)
	return process{}
}

type inspector interface {
	Inspect(ctx context.Context) (rlock.State, error)
}

func (w *optionWorld) locker(l rlock.Locker, of inspector) process {
	take := func(ctx context.Context, options ...rlock.Option) (func(), error) {
		_, hold, err := l.Lock(ctx, options...)
		testlock.Keep(w.t, hold)
		return func() { _ = hold.Unlock(bg) }, err
	}
	return process{take, waiting(take), w.remaining(of)}
}

func (w *optionWorld) candidate(e *election.Election) process {
	take := func(ctx context.Context, _ ...rlock.Option) (func(), error) {
		_, l, err := e.Campaign(ctx, "v")
		return func() { _ = l.Resign(bg) }, err
	}
	return process{take, waiting(take), w.remaining(e)}
}

func (w *optionWorld) party(l *latch.Latch) process {
	_, err := l.TrySet(bg, 100)
	testlock.Must(w.t, err)
	var parties atomic.Int64
	take := func(ctx context.Context, _ ...rlock.Option) (func(), error) {
		_, p, err := l.Join(ctx, fmt.Sprintf("%p %d", l, parties.Add(1)))
		return func() { _ = p.Abandon(bg) }, err
	}
	remaining := func() (left time.Duration) {
		st, err := l.Inspect(bg)
		testlock.Must(w.t, err)
		for _, m := range st.Parties {
			left = max(left, m.Remaining)
		}
		return left
	}
	return process{take, func(ctx context.Context) { _ = l.Wait(ctx) }, remaining}
}

// waiting returns a function that waits until take has taken the lock, and then releases the lock.
func waiting(take func(context.Context, ...rlock.Option) (func(), error)) func(context.Context) {
	return func(ctx context.Context) {
		if release, err := take(ctx); err == nil {
			release()
		}
	}
}

func (w *optionWorld) remaining(of inspector) func() time.Duration {
	return func() time.Duration {
		st, err := of.Inspect(bg)
		testlock.Must(w.t, err)
		if !st.Held {
			return 0
		}
		return st.Remaining
	}
}

// contains reports whether a key or a value in Redis contains text.
func (w *optionWorld) contains(text string) bool {
	return slices.ContainsFunc(w.wires, func(wire *testlock.Wire) bool {
		return strings.Contains(wire.Dump(), text)
	})
}

// within returns a context that ends after d.
func (w *optionWorld) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(bg, d)
	w.t.Cleanup(cancel)
	return ctx
}

// take makes process p take the lock. It fails the test if p gets an error.
func (w *optionWorld) take(p process) (release func()) {
	w.t.Helper()
	release, err := p.take(w.within(time.Hour))
	testlock.Must(w.t, err)
	return release
}

// A probe reports whether an option counts for a kind of lock. It gets a new world of this kind.
type probe func(w *optionWorld) (counts bool, err error)

// differ returns a probe for an option with two values, a and b. The probe calls number with each of them.
// The option counts if the results differ.
func differ(number func(w *optionWorld, option rlock.SessionOption) int, a, b rlock.SessionOption) probe {
	return func(w *optionWorld) (bool, error) {
		first := number(w, a)
		second := number(newOptionWorld(w.t, w.kind), b)
		return first != second, nil
	}
}

var probes = map[string]probe{
	"WithLease": func(w *optionWorld) (bool, error) {
		p := w.with(rlock.WithLease(20 * time.Second))
		defer w.take(p)()
		time.Sleep(time.Minute) // only a lease without the option is renewed
		return p.remaining() == 0, nil
	},
	"HoldAtLeast": func(w *optionWorld) (bool, error) {
		p := w.with(rlock.HoldAtLeast(time.Minute))
		release, err := p.take(bg)
		if err != nil {
			return false, err
		}
		release()
		time.Sleep(time.Second)
		return p.remaining() > 0, nil
	},
	"WaitAtMost": func(w *optionWorld) (bool, error) {
		defer w.take(w.process())()
		begun := time.Now()
		_, err := w.with(rlock.WaitAtMost(time.Second)).take(w.within(time.Minute))
		return err != nil && time.Since(begun) < 2*time.Second, nil
	},
	"WithNote": func(w *optionWorld) (bool, error) {
		defer w.take(w.with(rlock.WithNote("order 42")))()
		return w.contains("order 42"), nil
	},
	"WithPrefix": func(w *optionWorld) (bool, error) {
		defer w.take(w.process(rlock.WithPrefix("another")))()
		return slices.ContainsFunc(w.wires[0].Keys(), func(key string) bool {
			return strings.HasPrefix(key, "another:")
		}), nil
	},
	"WithWatchdogTimeout": func(w *optionWorld) (bool, error) {
		p := w.process(rlock.WithWatchdogTimeout(10 * time.Minute))
		defer w.take(p)()
		return p.remaining() > 2*time.Minute, nil
	},
	"WithWaiterTimeout": func(w *optionWorld) (bool, error) {
		defer w.take(w.process())()
		heartbeats := func(timeout time.Duration) int {
			p, before := w.process(rlock.WithWaiterTimeout(timeout)), len(w.wires[0].Net.Requests())
			p.wait(w.within(2 * time.Minute))
			return len(w.wires[0].Net.Requests()) - before
		}
		return heartbeats(5*time.Second) > heartbeats(time.Minute)+20, nil
	},
	"WithHandover": differ(func(w *optionWorld, option rlock.SessionOption) int {
		release, handed := w.take(w.process()), atomic.Int64{}
		p := w.process(option, rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			if e.HandedOver {
				handed.Add(1)
			}
		})))
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				release, err := p.take(w.within(time.Hour))
				if err != nil {
					w.t.Error(err)
					return
				}
				time.Sleep(20 * time.Millisecond)
				release()
			})
			if i == 0 {
				time.Sleep(20 * time.Millisecond) // so the later goroutines share a lane of a fair lock
			}
		}
		time.Sleep(time.Second)
		release()
		all.Wait()
		return int(handed.Load())
	}, rlock.WithHandover(0), rlock.WithHandover(time.Hour)),
	"WithLinger": func(w *optionWorld) (bool, error) {
		p := w.process(rlock.WithLinger(time.Second))
		for range 5 {
			w.take(p)() // the session subscribes in the first cycles
			time.Sleep(20 * time.Millisecond)
		}
		return p.remaining() > 0, nil
	},
	"WithLabel": func(w *optionWorld) (bool, error) {
		defer w.take(w.process(rlock.WithLabel("till 3")))()
		return w.contains("till 3"), nil
	},
	"WithObserver": func(w *optionWorld) (bool, error) {
		var events atomic.Int64
		w.take(w.process(rlock.WithObserver(testlock.Observer(func(rlock.Event) { events.Add(1) }))))()
		return events.Load() > 0, nil
	},
}

// ofSessions has the options that the table does not list, because they belong to a session and not to a kind
// of lock. The text below the table describes them.
var ofSessions = []string{"WithClassicPubSub", "WithLogger"}

func TestTheTableOfOptionsIsTrue(t *testing.T) {
	columns, cells := optionTable(t)
	ofCalls := optionsOf(t, "Option")
	for name, doc := range optionsOf(t, "Option", "SessionOption") {
		listed := !slices.Contains(ofSessions, name)
		if (cells[name] != nil) != listed {
			t.Errorf("%s is missing in the table, or should be", name)
		}
		if listed != strings.Contains(doc, "See the table of options in the package documentation.") {
			t.Errorf("the documentation of %s does not name the table, or should not", name)
		}
	}
	for option, row := range cells {
		if probes[option] == nil {
			t.Errorf("there is no probe of %s", option)
			continue
		}
		for i, kind := range columns {
			cannot := kind == "member"
			if ofCalls[option] != "" {
				cannot = kind == "election" || kind == "latch"
			}
			if cannot || row[i] == "-" {
				if !cannot || row[i] != "-" {
					t.Errorf("%s, %s: %s, but can it be given?", option, kind, row[i])
				}
				continue
			}
			t.Run(option+"/"+kind, func(t *testing.T) {
				t.Parallel()
				testlock.InFakeTime(t, func(t *testing.T) {
					counts, err := probes[option](newOptionWorld(t, kind))
					got := map[bool]string{true: "yes", false: "no"}[counts]
					if err != nil {
						got = "error"
					}
					if got != row[i] {
						t.Errorf("the table says %s, but it is %s (%v)", row[i], got, err)
					}
				})
			})
		}
	}
}
