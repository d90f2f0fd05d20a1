package inbox_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/inbox"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/testing/testlock"
)

// attempt notes what it is told.
type attempt struct {
	told   [][]string
	missed int
}

func (a *attempt) Key() string { return "lockline:r:{x}" }

func (a *attempt) Told(words []string) { a.told = append(a.told, words) }
func (a *attempt) Missed()             { a.missed++ }

func TestAMessageGoesToTheAttemptThatItNames(t *testing.T) {
	in := inbox.New(nil)
	a, b := &attempt{}, &attempt{}
	in.Add("s:1", a)
	in.Add("s:2", b)
	for _, m := range []string{"s:1 7 8", "s:2 9", "s:3 10", "", " ", "s:1"} {
		in.Receive(m)
	}
	in.Remove("s:1")
	in.Receive("s:1 11")
	if want := [][]string{{"7", "8"}, {}}; !slices.EqualFunc(a.told, want, slices.Equal[[]string]) {
		t.Errorf("the first was told %q, want %q", a.told, want)
	}
	if want := [][]string{{"9"}}; !slices.EqualFunc(b.told, want, slices.Equal[[]string]) {
		t.Errorf("the second was told %q, want %q", b.told, want)
	}
	if in.Find("s:1") != nil || in.Find("s:2") != b {
		t.Error("Find finds another one")
	}
}

func TestTheSessionListensWhileAnAttemptWaitsAndALittleLonger(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := inner.Session(testlock.NewSession(t, w.Client))
		in, err := inbox.Of(s)
		testlock.Must(t, err)
		a := &attempt{}
		in.Add("s:1", a)
		in.Listen(a.Key(), false)
		synctest.Wait()
		channel := "lockline:s:" + s.ID()
		listens := func(when string, want bool) {
			t.Helper()
			if got := len(w.PubSubChannels(channel)) > 0; got != want {
				t.Errorf("%s: it listens: %v", when, got)
			}
		}
		listens("an attempt waits", true)
		if a.missed != 1 { // before it listened
			t.Errorf("the attempt may have missed something %d times", a.missed)
		}
		w.Publish(channel, "s:1 x")
		synctest.Wait()
		if len(a.told) != 1 || !slices.Equal(a.told[0], []string{"x"}) {
			t.Errorf("it is told %q", a.told)
		}
		in.Remove("s:1")
		synctest.Wait()
		listens("it is over", true)
		time.Sleep(time.Hour)
		listens("long after that", false)
	})
}
