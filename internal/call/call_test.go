package call_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A request is answered after the time takes.
type request struct {
	takes     time.Duration
	abandoned bool // the caller has left before the answer
	rolled    []wire.Outcome
}

func (r *request) Send(_ context.Context, _ int, abandoned *atomic.Bool) wire.Outcome {
	time.Sleep(r.takes)
	r.abandoned = abandoned.Load()
	return wire.Outcome{Reply: "answer"}
}

func (r *request) RollBack(o wire.Outcome) { r.rolled = append(r.rolled, o) }

// open returns a session that counts a caller (Begin). If answered is false, the server has never answered,
// so it counts as silent.
func open(t *testing.T, answered bool) *session.Session {
	s := fake.Session(t, fake.Client(t, func(fake.Call) (string, error) { return "x", nil }))
	if !s.Begin() {
		t.Fatal("the session is closed")
	}
	t.Cleanup(s.End)
	if answered {
		s.Link.Call(t.Context(), one{}, 1, nil)
	}
	return s
}

// one makes a request that every server answers.
type one struct{}

func (one) Request(time.Time) *wire.Request {
	return wire.NewRequest(wire.NewScript("return 'x'"), []any{"k"}, nil)
}

func TestAnAnswerInTimeIsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, silent := range []bool{false, true} { // sent in the caller's goroutine, or in another one
			r := &request{takes: time.Second}
			o, ok := call.Ask(&call.Bounds{Until: t.Context()}, open(t, !silent), "k", r, time.Minute)
			synctest.Wait()
			if !ok || o.Reply != "answer" || r.abandoned || len(r.rolled) != 0 {
				t.Errorf("%v, %+v, %+v", ok, o, r)
			}
		}
	})
}

func TestACallThatIsAbandonedIsRolledBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The second time limit ends at the same time as the answer arrives.
		for _, patience := range []time.Duration{time.Millisecond, time.Second} {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			r := &request{takes: time.Second}
			o, ok := call.Ask(&call.Bounds{Until: ctx}, open(t, false), "k", r, time.Minute)
			time.Sleep(time.Minute)
			synctest.Wait()
			switch {
			case ok && (len(r.rolled) != 0 || o.Reply != "answer"):
				t.Errorf("answered: %+v", r)
			case !ok && (len(r.rolled) != 1 || r.rolled[0].Reply != "answer"):
				t.Errorf("abandoned after %v: %+v", patience, r)
			case ok && patience < r.takes:
				t.Error("it was answered before its time")
			}
		}
	})
}

// twice is a request whose first copy is sent in the caller's goroutine, and takes as long as the later
// copies, which are sent in another goroutine.
type twice struct {
	request
	first wire.Outcome
}

func (r *twice) Send(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome {
	if maxTries > 1 {
		return r.request.Send(ctx, maxTries, abandoned)
	}
	time.Sleep(r.takes)
	return r.first
}

func TestACopyInTheCallersGoroutineIsSentAgainOnlyIfThatDoesNotSettleIt(t *testing.T) {
	lost, wrong := errors.New("lost"), redis.ErrClosed
	for _, c := range []struct {
		name     string
		first    wire.Outcome
		patience time.Duration // time limit of the caller
		want     wire.Outcome
		rolled   int
	}{
		{name: "answered", first: wire.Outcome{Reply: "at once"}, patience: time.Hour,
			want: wire.Outcome{Reply: "at once"}},
		{name: "refused", first: wire.Outcome{Err: wrong}, patience: time.Hour,
			want: wire.Outcome{Err: wrong}},
		{name: "not answered", first: wire.Outcome{Err: lost, Unanswered: lost, Again: true},
			patience: time.Hour, want: wire.Outcome{Reply: "answer", Unanswered: lost}},
		{name: "answered when the caller has left", first: wire.Outcome{Reply: "at once"},
			patience: time.Millisecond, want: wire.Outcome{Reply: "at once"}},
		{name: "not answered when the caller has left",
			first: wire.Outcome{Err: lost, Unanswered: lost, Again: true}, patience: time.Millisecond,
			rolled: 1, want: wire.Outcome{Reply: "answer", Unanswered: lost}},
		{name: "not answered before the caller leaves",
			first: wire.Outcome{Err: lost, Unanswered: lost, Again: true}, patience: 1500 * time.Millisecond,
			rolled: 1, want: wire.Outcome{Reply: "answer", Unanswered: lost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), c.patience)
				defer cancel()
				r := &twice{request: request{takes: time.Second}, first: c.first}
				b, s := &call.Bounds{Until: ctx}, open(t, true)
				o, ok := call.Ask(b, s, "k", r, time.Minute)
				time.Sleep(time.Minute)
				synctest.Wait()
				if ok != (c.rolled == 0) || len(r.rolled) != c.rolled {
					t.Fatalf("%v, rolled back: %+v", ok, r.rolled)
				}
				if !ok {
					o = r.rolled[0]
				}
				if o.Reply != c.want.Reply || o.Err != c.want.Err || o.Unanswered != c.want.Unanswered {
					t.Errorf("%+v, want %+v", o, c.want)
				}
			})
		})
	}
}
