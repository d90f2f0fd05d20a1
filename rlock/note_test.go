package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestOthersSeeTheNoteOfTheHolderAndOfAWaiter(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		mine := rlock.New(testlock.NewSession(t, w.Client, rlock.WithLabel("till 3")), "x")
		other := rlock.New(testlock.NewSession(t, w.Client), "x")
		hold := testlock.Take(t, mine, rlock.WithNote("order 42, Zürich"))
		wait := make(chan struct{})
		go func() {
			defer close(wait)
			testlock.Unlock(t, testlock.Take(t, other, rlock.WithNote("order 43")))
		}()
		synctest.Wait()

		st, err := other.Inspect(bg)
		testlock.Must(t, err)
		if st.Note != "order 42, Zürich" || st.Label != "till 3" || st.Queue[0].Note != "order 43" ||
			st.Queue[0].Label != "" {
			t.Errorf("Inspect shows %+v", st)
		}
		for what, m := range map[string]*rlock.Mutex{"another session": other, "the same session": mine} {
			_, _, err = m.TryLock(bg)
			var locked *rlock.LockedError
			if !errors.As(err, &locked) {
				t.Fatalf("%s: %v", what, err)
			}
			h := locked.HeldBy()
			if h.Note != "order 42, Zürich" || h.Label != "till 3" || h.Host != st.Host {
				t.Errorf("%s: HeldBy is %+v", what, h)
			}
			if text := ` till 3, note "order 42, Zürich")`; !strings.Contains(err.Error(), text) {
				t.Errorf("%s: the text %q lacks %q", what, err, text)
			}
		}
		testlock.Unlock(t, hold)
		<-wait
	})
}

func TestANoteStaysWhileTheSessionPassesTheLockOnInMemory(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		first := testlock.Take(t, m, rlock.WithNote("first"))
		second := make(chan *rlock.Hold)
		go func() { second <- testlock.Take(t, m, rlock.WithNote("second")) }()
		synctest.Wait()
		testlock.Unlock(t, first)
		hold := <-second
		note := func(want string) {
			t.Helper()
			st, err := m.Inspect(bg)
			_, _, refused := m.TryLock(bg)
			var locked *rlock.LockedError
			if !errors.As(refused, &locked) {
				t.Fatalf("TryLock: %v", refused)
			}
			if here := locked.HeldBy().Note; err != nil || st.Note != want || here != want {
				t.Errorf("Redis has the note %q, error %v, and a refusal the note %q", st.Note, err, here)
			}
		}
		note("first")
		testlock.Unlock(t, hold)
		hold = testlock.Take(t, m)
		note("") // the note of the last hold is gone
		testlock.Unlock(t, hold)
	})
}

func TestANoteThatIsNoLineOfTextIsRefused(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		session := testlock.NewSession(t, w.Client)
		for note, why := range map[string]string{
			"two\nlines":             "control character",
			"a\ttab":                 "control character",
			"\xff":                   "UTF-8",
			strings.Repeat("n", 513): "513 bytes",
		} {
			ctx, hold, err := rlock.New(session, "x").Lock(bg, rlock.WithNote(note))
			if err == nil || !strings.HasPrefix(err.Error(), "lockline: WithNote: ") ||
				!strings.Contains(err.Error(), why) || hold != nil || ctx != context.Background() {
				t.Errorf("%.10q: %v", note, err)
			}
		}
		long := strings.Repeat("n", 512)
		hold := testlock.Take(t, rlock.New(session, "x", rlock.WithNote("of New")), rlock.WithNote(long))
		if st, err := rlock.New(session, "x").Inspect(bg); err != nil || st.Note != long {
			t.Errorf("Inspect shows the note %q, error %v", st.Note, err)
		}
		testlock.Unlock(t, hold)
	})
}
