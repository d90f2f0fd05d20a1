package docs

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/pubsub"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
	"github.com/lockline/lockline/watchdog"
)

// functions has all functions that the packages of the library export, by their names.
var functions = map[string]any{
	"election.New": election.New, "fairlock.New": fairlock.New,
	"latch.New": latch.New, "latch.WithLifetime": latch.WithLifetime,
	"locktest.NewServer": locktest.NewServer, "locktest.NewSession": locktest.NewSession,
	"locktest.Take": locktest.Take,
	"multilock.New": multilock.New, "multilock.NewQuorum": multilock.NewQuorum,
	"multilock.WithServerTimeout": multilock.WithServerTimeout,
	"pubsub.Masters":              pubsub.Masters, "pubsub.NewHub": pubsub.NewHub,
	"pubsub.NewShardedHub": pubsub.NewShardedHub, "pubsub.NewClusterHub": pubsub.NewClusterHub,
	"redisson.New": redisson.New, "redisson.NewFenced": redisson.NewFenced,
	"rlock.Do": rlock.Do, "rlock.HoldAtLeast": rlock.HoldAtLeast, "rlock.HoldFrom": rlock.HoldFrom,
	"rlock.New": rlock.New, "rlock.NewSession": rlock.NewSession, "rlock.WaitAtMost": rlock.WaitAtMost,
	"rlock.WithClassicPubSub": rlock.WithClassicPubSub, "rlock.WithHandover": rlock.WithHandover,
	"rlock.WithLabel": rlock.WithLabel, "rlock.WithLease": rlock.WithLease,
	"rlock.WithLinger": rlock.WithLinger, "rlock.WithLogger": rlock.WithLogger,
	"rlock.WithNote":     rlock.WithNote,
	"rlock.WithObserver": rlock.WithObserver, "rlock.WithOwner": rlock.WithOwner,
	"rlock.WithPrefix": rlock.WithPrefix, "rlock.WithWaiterTimeout": rlock.WithWaiterTimeout,
	"rlock.WithWatchdogTimeout": rlock.WithWatchdogTimeout,
	"rwlock.New":                rwlock.New, "semaphore.New": semaphore.New, "watchdog.New": watchdog.New,
}

// receivers has a function for each type with exported methods. This function makes a value whose methods
// work.
var receivers = map[string]func(*nilWorld) any{
	"election.Election": func(w *nilWorld) any { return election.New(w.session, "x") },
	"election.Leader":   func(w *nilWorld) any { return new(election.Leader) },
	"election.Leadership": func(w *nilWorld) any {
		_, l, err := election.New(w.session, "x").Campaign(bg, "")
		testlock.Must(w.t, err)
		return l
	},
	"latch.Latch": func(w *nilWorld) any { return latch.New(w.session, "x") },
	"latch.Party": func(w *nilWorld) any {
		l := latch.New(w.session, "x")
		_, err := l.TrySet(bg, 5)
		testlock.Must(w.t, err)
		_, p, err := l.Join(bg, "p")
		testlock.Must(w.t, err)
		return p
	},
	"locktest.Server":     func(w *nilWorld) any { return locktest.NewServer(w.mayFail()) },
	"multilock.MultiLock": func(w *nilWorld) any { return multilock.New(rlock.New(w.session, "x")) },
	"multilock.Quorum":    func(w *nilWorld) any { return w.quorum() },
	"multilock.RedLock":   func(w *nilWorld) any { return w.quorum().New("x") },
	"pubsub.Hub":          func(w *nilWorld) any { return w.hub() },
	"pubsub.Subscription": func(w *nilWorld) any { return w.hub().Subscribe("x") },
	"redisson.Mutex":      func(w *nilWorld) any { return redisson.New(w.session, "x") },
	"rlock.EventType":     func(w *nilWorld) any { return new(rlock.EventType) },
	"rlock.Hold":          func(w *nilWorld) any { return testlock.Take(w.t, rlock.New(w.session, "x")) },
	"rlock.Holder":        func(w *nilWorld) any { return new(rlock.Holder) },
	"rlock.Kind":          func(w *nilWorld) any { return new(rlock.Kind) },
	"rlock.Mutex":         func(w *nilWorld) any { return rlock.New(w.session, "x") },
	"rlock.Session":       func(w *nilWorld) any { return w.session },
	"rlock.State":         func(w *nilWorld) any { return new(rlock.State) },
	"rwlock.RWMutex":      func(w *nilWorld) any { return rwlock.New(w.session, "x") },
	"semaphore.Semaphore": func(w *nilWorld) any { return semaphore.New(w.session, "x", 2) },
	"watchdog.Watchdog":   func(w *nilWorld) any { return watchdog.New(idleKeeper{}) },
}

// meansSomething has the parameters that may be nil, with the meaning of nil in the documentation.
var meansSomething = map[string]string{
	"election.Leadership.Resign(context.Context)": "with a bound of 5 s",
	"rlock.Hold.Unlock(context.Context)":          "with a bound of 5 s",
	"rlock.HoldFrom(context.Context)":             "no hold",
	"rlock.Session.Shutdown(context.Context)":     "as Close",
	"rlock.WithLogger(*slog.Logger)":              "slog.Default",
	"rlock.WithObserver(rlock.Observer)":          "no observer",
}

// said has the words by which an error names a nil argument, for each type of argument.
var said = map[string]string{
	"context.Context": "context is nil", "func(context.Context) error": "function is nil",
	"*rlock.Session": "session", "rlock.Client": "client is nil", "rlock.Locker": "nil",
	"[]*rlock.Session": "no sessions",
}

// A failing takes the place of the test in calls of package locktest. It records a failure, so that the real
// test goes on.
type failing struct {
	*testing.T
	mu  sync.Mutex // guards err
	err error
}

// stopped is the value with which the methods Fatal and Fatalf of a failing panic.
type stopped struct{ error }

func (f *failing) Error(args ...any)                 { f.fail(fmt.Sprint(args...)) }
func (f *failing) Errorf(format string, args ...any) { f.fail(fmt.Sprintf(format, args...)) }
func (f *failing) Fatal(args ...any)                 { panic(stopped{f.fail(fmt.Sprint(args...))}) }
func (f *failing) Fatalf(format string, args ...any) {
	panic(stopped{f.fail(fmt.Sprintf(format, args...))})
}

func (f *failing) fail(text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.New(text)
	return f.err
}

func (f *failing) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// nilWorld has the session and the server for the calls of one test.
type nilWorld struct {
	t       *testing.T
	wire    *testlock.Wire
	session *rlock.Session
	failing *failing // test for functions of package locktest; nil: not used yet
}

// mayFail returns w.failing. The first call makes it.
func (w *nilWorld) mayFail() testing.TB {
	if w.failing == nil {
		w.failing = &failing{T: w.t}
	}
	return w.failing
}

func (w *nilWorld) quorum() *multilock.Quorum {
	q, err := multilock.NewQuorum([]*rlock.Session{w.session})
	testlock.Must(w.t, err)
	return q
}

func (w *nilWorld) hub() *pubsub.Hub {
	h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return w.wire.Client.Subscribe(ctx) },
		pubsub.Options{})
	w.t.Cleanup(h.Close)
	return h
}

// good returns an argument of this type with which a call works.
func (w *nilWorld) good(of reflect.Type) reflect.Value {
	var v any
	switch of.String() {
	case "context.Context":
		ctx, cancel := context.WithTimeout(bg, time.Second)
		w.t.Cleanup(cancel)
		v = ctx
	case "string":
		v = "x"
	case "func(context.Context) error":
		v = func(context.Context) error { w.t.Error("the function ran"); return nil }
	case "*rlock.Session":
		v = w.session
	case "[]*rlock.Session":
		v = []*rlock.Session{w.session}
	case "rlock.Client":
		v = w.wire.Client
	case "rlock.Locker":
		v = rlock.New(w.session, "x")
	case "time.Duration":
		v = time.Second
	case "int", "int64":
		return reflect.ValueOf(1).Convert(of)
	case "testing.TB":
		v = w.mayFail()
	case "*watchdog.Lease":
		v = new(watchdog.Lease)
	case "chan struct {}":
		v = make(chan struct{}, 1)
	default: // structs, and types that are always passed as nil
		return reflect.Zero(of)
	}
	return reflect.ValueOf(v)
}

// An idleKeeper is a watchdog.Keeper that renews no lease.
type idleKeeper struct{}

func (idleKeeper) Server(*watchdog.Lease) any { return nil }
func (idleKeeper) Renew(_ context.Context, _ any, batch []*watchdog.Lease) []watchdog.Result {
	return make([]watchdog.Result, len(batch))
}
func (idleKeeper) Lost(*watchdog.Lease, bool)    {}
func (idleKeeper) Failed(*watchdog.Lease, error) {}

// An exported is a function or method that users can call. Its doc is the documentation of the function. For
// a method, doc also has the documentation of the type.
type exported struct {
	name, of, method string
	doc              string
}

// api returns all functions and methods that the packages of the library export. It leaves out the methods of
// errors, because a nil error means that there is no error.
func api(t *testing.T) (all []exported) {
	for _, folder := range slices.Concat(append(layers, []string{"locktest"})...) {
		if strings.HasPrefix(folder, "internal/") {
			continue
		}
		types := map[string]string{}
		var found []exported
		files, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
		testlock.Must(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			testlock.Must(t, err)
			file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
			testlock.Must(t, err)
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.GenDecl:
					for _, s := range d.Specs {
						if s, ok := s.(*ast.TypeSpec); ok {
							types[s.Name.Name] = d.Doc.Text() + s.Doc.Text()
						}
					}
				case *ast.FuncDecl:
					e := exported{name: folder + "." + d.Name.Name, doc: d.Doc.Text()}
					if d.Recv != nil {
						r := d.Recv.List[0].Type
						if star, ok := r.(*ast.StarExpr); ok {
							r = star.X
						}
						id, ok := r.(*ast.Ident)
						if !ok || !id.IsExported() || strings.HasSuffix(id.Name, "Error") {
							continue
						}
						e.of, e.method = folder+"."+id.Name, d.Name.Name
						e.name = e.of + "." + e.method
					}
					if d.Name.IsExported() {
						found = append(found, e)
					}
				}
			}
		}
		for _, e := range found {
			e.doc += types[strings.TrimPrefix(e.of, folder+".")]
			all = append(all, e)
		}
	}
	return all
}

// outcome has the results of a call with a nil, or the value with which it panicked.
type outcome struct {
	results []reflect.Value
	panic   any
}

// err returns the error of the call. If the call has returned no error but a value, err uses this value once,
// and returns the error of that use.
func (o outcome) err(w *nilWorld) error {
	if w.failing != nil && w.failing.failed() != nil {
		return w.failing.failed()
	}
	if len(o.results) == 0 {
		return nil
	}
	switch v := o.results[len(o.results)-1].Interface().(type) {
	case error:
		return v
	case rlock.Locker:
		_, _, err := v.TryLock(bg)
		return err
	case *latch.Latch:
		return v.CountDown(bg)
	case *election.Election:
		_, _, err := v.Leader(bg)
		return err
	case *semaphore.Semaphore:
		_, err := v.Inspect(bg)
		return err
	case iter.Seq2[election.Leader, error]:
		for _, err := range v {
			return err
		}
	}
	return nil
}

func call(f reflect.Value, args []reflect.Value) (o outcome) {
	defer func() { o.panic = recover() }()
	if f.Type().IsVariadic() {
		return outcome{results: f.CallSlice(args)}
	}
	return outcome{results: f.Call(args)}
}

// A function that gets nil by mistake must return an error, or panic in the goroutine that called it. A panic
// in another goroutine would end the process far from the mistake.
func TestEachExportedFunctionKnowsWhatToDoWithNil(t *testing.T) {
	for _, e := range api(t) {
		t.Run(e.name, func(t *testing.T) {
			// open returns the function. If e is a method, open makes its receiver first.
			open := func(w *nilWorld) reflect.Value {
				if e.method == "" {
					return reflect.ValueOf(functions[e.name])
				}
				return reflect.ValueOf(receivers[e.of](w)).MethodByName(e.method)
			}
			if e.method == "" && functions[e.name] == nil || e.method != "" && receivers[e.of] == nil {
				t.Fatal("it is not in this test: add it to functions, or its type to receivers")
			}
			within := func(body func(w *nilWorld)) {
				testlock.Simulated(t, func(t *testing.T, wire *testlock.Wire) {
					body(&nilWorld{t: t, wire: wire, session: testlock.NewSession(t, wire.Client)})
				})
			}
			var of reflect.Type // type of the function
			within(func(w *nilWorld) { of = open(w).Type() })
			for i := range of.NumIn() {
				if in := of.In(i); isNilable(in) {
					within(func(w *nilWorld) { w.nilArgument(e, open(w), i) })
				}
			}
			if e.method != "" {
				within(func(w *nilWorld) { w.nilReceiver(e, reflect.TypeOf(receivers[e.of](w))) })
			}
		})
	}
}

func isNilable(of reflect.Type) bool {
	return slices.Contains([]reflect.Kind{reflect.Interface, reflect.Pointer, reflect.Func, reflect.Chan,
		reflect.Map, reflect.Slice}, of.Kind())
}

// args returns good arguments for a function of this type.
func (w *nilWorld) args(of reflect.Type) (args []reflect.Value) {
	for i := range of.NumIn() {
		args = append(args, w.good(of.In(i)))
	}
	return args
}

// nilArgument checks a call whose argument i is nil. If parameter i is variadic, the call has one argument
// for it, which is nil.
func (w *nilWorld) nilArgument(e exported, f reflect.Value, i int) {
	of, args := f.Type(), w.args(f.Type())
	param := of.In(i)
	args[i] = reflect.Zero(param)
	option := false
	if of.IsVariadic() && i == of.NumIn()-1 {
		args[i], param = reflect.MakeSlice(param, 1, 1), param.Elem()
		option = strings.HasSuffix(param.String(), "Option")
		for j := range args[:i] {
			if _, ok := args[j].Interface().(func(context.Context) error); ok {
				args[j] = reflect.ValueOf(func(context.Context) error { return nil }) // may run
			}
		}
	}
	what := fmt.Sprintf("%s(%s)", e.name, param)
	o := call(f, args)
	if _, fatal := o.panic.(stopped); o.panic != nil && !fatal {
		if !strings.Contains(e.doc, "panic") {
			w.t.Errorf("%s panics, and its documentation does not say so: %v", what, o.panic)
		}
		return
	}
	err := o.err(w)
	if meansSomething[what] != "" || option {
		if err != nil {
			w.t.Errorf("%s: %v", what, err)
		}
		return
	}
	want := said[param.String()]
	if want == "" || err == nil || !strings.Contains(err.Error(), want) {
		w.t.Errorf("%s: %v, want an error with %q", what, err, want)
		return
	}
	testlock.OnePrefix(w.t, what, err)
}

// nilReceiver calls a method on a nil pointer of type of, and on a pointer to a zero value.
func (w *nilWorld) nilReceiver(e exported, of reflect.Type) {
	for what, r := range map[string]reflect.Value{"nil": reflect.Zero(of), "zero": reflect.New(of.Elem())} {
		if _, byValue := of.Elem().MethodByName(e.method); byValue && what == "nil" {
			continue // Go panics before the method begins
		}
		f := r.MethodByName(e.method)
		o := call(f, w.args(f.Type()))
		switch err := o.err(w); {
		case o.panic != nil && !strings.Contains(e.doc, "panic"):
			w.t.Errorf("%s of a %s receiver panics, and its documentation does not say so: %v",
				e.name, what, o.panic)
		case o.panic == nil && err == nil && returnsError(f.Type()):
			w.t.Errorf("%s of a %s receiver returns no error", e.name, what)
		case err != nil:
			testlock.OnePrefix(w.t, e.name, err)
		}
	}
}

func returnsError(f reflect.Type) bool {
	return f.NumOut() > 0 && f.Out(f.NumOut()-1) == reflect.TypeFor[error]()
}
