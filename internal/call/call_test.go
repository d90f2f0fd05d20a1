package call_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is answered after a time.
type request struct {
	takes     time.Duration
	abandoned bool // its caller had left when the answer came
	rolled    []wire.Outcome
}

func (r *request) Send(abandoned *atomic.Bool) wire.Outcome {
	time.Sleep(r.takes)
	r.abandoned = abandoned.Load()
	return wire.Outcome{Reply: "answer"}
}

func (r *request) RollBack(o wire.Outcome) { r.rolled = append(r.rolled, o) }

// open is a session with a caller that is counted in its work.
func open(t *testing.T) *session.Session {
	s := new(fake.Store).Session(t)
	if !s.Begin() {
		t.Fatal("the session is closed")
	}
	t.Cleanup(s.End)
	return s
}

func TestAnAnswerInTimeIsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ctx := range []context.Context{context.Background(), t.Context()} { // in the caller's goroutine, or one of its own
			r := &request{takes: time.Second}
			o, ok := call.Exchange(&wakeup.Bounds{Ctx: ctx}, open(t), r, func() func() { t.Error("it has left"); return func() {} })
			synctest.Wait()
			if !ok || o.Reply != "answer" || r.abandoned || len(r.rolled) != 0 {
				t.Errorf("%v, %+v, %+v", ok, o, r)
			}
		}
	})
}

func TestACallThatIsAbandonedIsRolledBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, patience := range []time.Duration{time.Millisecond, time.Second} { // the latter ends in the instant of the answer
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			r := &request{takes: time.Second}
			left, over := 0, 0
			o, ok := call.Exchange(&wakeup.Bounds{Ctx: ctx}, open(t), r, func() func() {
				if left++; len(r.rolled) != 0 {
					t.Error("rolled back before the caller has left")
				}
				return func() { over++ }
			})
			time.Sleep(time.Minute)
			synctest.Wait()
			switch {
			case ok && (left != 0 || len(r.rolled) != 0 || o.Reply != "answer"):
				t.Errorf("answered: %d, %+v", left, r)
			case !ok && (left != 1 || over != 1 || len(r.rolled) != 1 || r.rolled[0].Reply != "answer"):
				t.Errorf("abandoned after %v: left %d, over %d, %+v", patience, left, over, r)
			case ok && patience < r.takes:
				t.Error("it was answered before its time")
			}
		}
	})
}

// promptly is a request whose first copy takes a time of its own, in the caller's goroutine.
type promptly struct {
	request
	first time.Duration
	o     wire.Outcome
	ok    bool
}

func (r *promptly) SendPromptly() (wire.Outcome, bool) {
	time.Sleep(r.first)
	return r.o, r.ok
}

func TestAPromptRequestIsSentAgainOnlyIfThatDoesNotSettleIt(t *testing.T) {
	lost := errors.New("lost")
	for _, c := range []struct {
		name     string
		o        wire.Outcome
		ok       bool
		patience time.Duration // of the caller; the first copy takes a second, the next one too
		expires  bool          // the time that the caller waits is bounded otherwise
		want     wire.Outcome
		rolled   int
	}{
		{name: "answered", o: wire.Outcome{Reply: "at once"}, ok: true, patience: time.Hour, want: wire.Outcome{Reply: "at once"}},
		{name: "refused", o: wire.Outcome{Err: lost}, ok: true, patience: time.Hour, want: wire.Outcome{Err: lost}},
		{name: "not sent", patience: time.Hour, want: wire.Outcome{Reply: "answer"}},
		{name: "not answered", o: wire.Outcome{Err: lost, Unanswered: lost}, patience: time.Hour, want: wire.Outcome{Reply: "answer", Unanswered: lost}},
		{name: "answered when the caller has left", o: wire.Outcome{Reply: "at once"}, ok: true, patience: time.Millisecond, rolled: 1, want: wire.Outcome{Reply: "at once"}},
		{name: "not answered when the caller has left", o: wire.Outcome{Err: lost, Unanswered: lost}, patience: time.Millisecond, rolled: 1, want: wire.Outcome{Err: lost, Unanswered: lost}},
		{name: "not answered before the caller leaves", o: wire.Outcome{Unanswered: lost}, patience: 1500 * time.Millisecond, rolled: 1, want: wire.Outcome{Reply: "answer", Unanswered: lost}},
		{name: "bounded by a timer", o: wire.Outcome{Reply: "at once"}, ok: true, patience: time.Hour, expires: true, want: wire.Outcome{Reply: "answer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), c.patience)
				defer cancel()
				b := &wakeup.Bounds{Ctx: ctx}
				if c.expires {
					b.Expired = time.After(time.Hour)
				}
				r := &promptly{request: request{takes: time.Second}, first: time.Second, o: c.o, ok: c.ok}
				over := 0
				o, ok := call.Exchange(b, open(t), r, func() func() { return func() { over++ } })
				time.Sleep(time.Minute)
				synctest.Wait()
				if ok != (c.rolled == 0) || over != c.rolled || len(r.rolled) != c.rolled {
					t.Fatalf("%v, %d over, rolled back: %+v", ok, over, r.rolled)
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
