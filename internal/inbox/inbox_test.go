package inbox_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/lockline/lockline/internal/inbox"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// attempt notes what it is told.
type attempt struct {
	mu     sync.Mutex
	told   [][]string
	missed int
}

func (a *attempt) Key() string { return "lockline:r:{x}" }

func (a *attempt) Told(words []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, words)
}

func (a *attempt) Missed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.missed++
}

func (a *attempt) misses() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.missed
}

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
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	s := inner.Session(testlock.NewSession(t, rdb))
	in, err := inbox.Of(s)
	testlock.Must(t, err)
	a := &attempt{}
	in.Add("s:1", a)
	in.Listen(a.Key())
	channel := "lockline:s:" + s.ID()
	testlock.Eventually(t, "it listens, and the attempt knows that it may have missed something", func() bool {
		return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 && a.misses() == 1
	})
	testlock.Must(t, rdb.Publish(t.Context(), channel, "s:1 x").Err())
	testlock.Eventually(t, "it is told", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.told) == 1 && slices.Equal(a.told[0], []string{"x"})
	})
	in.Remove("s:1")
	testlock.Eventually(t, "it listens no more", func() bool { return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] == 0 })
}
