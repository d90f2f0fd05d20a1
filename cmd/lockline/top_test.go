package main

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/lockline/lockline/rlock"
)

// noon is the present time in the tests of the page.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.Local)

// heldState returns the state of a lock with one holder. The lock has a waiter for each of waits, which are
// ages in ms.
func heldState(kind, name string, heldMS, leaseMS int64, waits ...int64) lockState {
	s := lockState{Name: name, Kind: kind, age: age{Since: &noon, HeldMS: heldMS}}
	s.hold(holder{party: party{Owner: "session:7", Session: "session", Host: "db1", PID: 42, Label: "till 3"},
		Token: 7, RemainingMS: leaseMS, age: s.age})
	for i, age := range waits {
		other := party{Owner: fmt.Sprint("other:", i), Session: "other", Host: "db2", PID: 43,
			Label: "till 4"}
		s.Queue = append(s.Queue, waiter{party: other, AgeMS: age})
	}
	return s
}

// pageOf returns a page that shows these locks.
func pageOf(width, height int, states ...lockState) *page {
	p := &page{server: "127.0.0.1:6379", pattern: "*", interval: time.Second, width: width, height: height}
	p.take(look{states, nil, noon})
	return p
}

// firsts returns the first column of each line.
func firsts(lines []string) (words []string) {
	for _, l := range lines {
		word, _, _ := strings.Cut(l, "  ")
		words = append(words, word)
	}
	return words
}

func someStates() []lockState {
	return []lockState{
		heldState("fair", "printer", 3_000, 29_900, 61_000, 300),
		heldState("reentrant", "orders:42", 3_600_000, 12_340),
		heldState("redlock", "ledger", 9_000, 8_000),
		{Name: "boot", Kind: rlock.KindLatch.String(), Count: 2},
		{Name: "text", Kind: "reentrant", Error: "its key is something else"},
	}
}

func TestTopFitsASmallScreen(t *testing.T) {
	p := pageOf(80, 12, someStates()...)
	want := `lockline top  12:00:00  every 1s  127.0.0.1:6379  *
5 of 5 locks, sorted by waiting

NAME                KIND      HELD FOR LEASE  WAITING FIRST  HOLDER
printer             fair      3s       29.9s  2       1m1s   42@db1 till 3
orders:42           reentrant 1h0m0s   12.3s  0              42@db1 till 3
ledger              redlock   9s       8s     ?              42@db1 till 3
boot                latch
text                reentrant                                its key is somethi…


q quit   s sort   ↑↓ scroll`
	if got := strings.Join(p.render(noon), "\n"); got != want {
		t.Errorf("it shows\n%s\nwant\n%s", got, want)
	}
}

func TestTopUsesALargeScreen(t *testing.T) {
	p := pageOf(200, 50, someStates()...)
	got := p.render(noon)
	if len(got) != 50 || !strings.Contains(got[3], "TOKEN") ||
		!strings.Contains(got[4], "process 42 on db1 (till 3)") {
		t.Errorf("it shows\n%s", strings.Join(got, "\n"))
	}
}

func TestTopSorts(t *testing.T) {
	p := pageOf(80, 10,
		lockState{Name: "a free one", Kind: "fair", Queue: []waiter{{AgeMS: 2_000}}},
		heldState("reentrant", "busy", 9_000, 10_000),
		heldState("fair", "crowd", 3_000, 20_000, 100, 50, 10),
		heldState("reentrant", "ending", 1_000, 500),
		heldState("fair", "longest wait", 2_000, 30_000, 9_000))
	for _, want := range []struct {
		by    string
		names []string
	}{
		{"waiting", []string{"crowd", "a free one", "longest wait", "busy", "ending"}},
		{"held for", []string{"busy", "crowd", "longest wait", "ending", "a free one"}},
		{"lease", []string{"ending", "busy", "crowd", "longest wait", "a free one"}},
		{"name", []string{"a free one", "busy", "crowd", "ending", "longest wait"}},
	} {
		got := p.render(noon)
		if names := firsts(got[4:9]); !slices.Equal(names, want.names) ||
			!strings.HasSuffix(got[1], "sorted by "+want.by) {
			t.Errorf("by %s: %q, want %q", want.by, got, want.names)
		}
		p.by++
	}
}

func TestTopScrolls(t *testing.T) {
	var states []lockState
	for i := range 40 {
		states = append(states, heldState("reentrant", fmt.Sprintf("lock %02d", i), 1, 1000))
	}
	p := pageOf(80, 22, states...) // 17 of the 40 locks fit on the screen
	for _, step := range []struct{ from, want int }{{-1, 0}, {0, 0}, {5, 5}, {23, 23}, {24, 23}} {
		p.from = step.from
		got := p.render(noon)
		first, last := fmt.Sprintf("lock %02d ", step.want), fmt.Sprintf("lock %02d ", step.want+16)
		if p.from != step.want || !strings.HasPrefix(got[4], first) || !strings.HasPrefix(got[20], last) {
			t.Errorf("from %d, it shows %q", step.from, got)
		}
	}
	p.take(look{states[:20], nil, noon}) // the other locks are free now
	if got := p.render(noon); p.from != 3 || !strings.HasPrefix(got[1], "17 of 20 locks") {
		t.Errorf("of 20, it shows %q", got)
	}
	p.take(look{nil, nil, noon})
	if got := p.render(noon); p.from != 0 || !strings.HasPrefix(got[1], "0 of 0 locks") {
		t.Errorf("of none, it shows %q", got)
	}
}

func hostile() []string {
	return append(awkward(), "\x1b]2;hacked\x07", "\x1b[2J\x1b[31mred", "a\r\nb\tc", "\u202egnp.exe",
		"\u200b\u200d", "\x9b31m", "\x7f",
		strings.Repeat("long ", 5000), strings.Repeat("長い", 50), strings.Repeat("👩‍👩‍👧‍👦", 20),
		"e"+strings.Repeat("\u0301", 300), "\u0301", "🇩🇪🇩")
}

// Names, labels, hosts and errors can have any text, because other programs write them.
func TestTopShowsWhatOthersWroteSafely(t *testing.T) {
	var states []lockState
	for _, name := range hostile() {
		s := heldState("fair", name, 1, 1000, 10)
		s.Holders[0].party = party{Owner: name, Session: name, Host: name, PID: 1, Label: name, Note: name}
		s.Queue[0].party = s.Holders[0].party
		states = append(states, s, lockState{Name: name, Kind: name, Error: name})
	}
	for _, size := range [][2]int{{80, 24}, {200, 50}, {1, 1}, {3, 5}, {12, 7}, {40, 8}, {0, 0}} {
		p := pageOf(size[0], size[1], states...)
		p.server, p.pattern = "host\x1b[31m", "\x1b*"
		p.take(look{nil, errors.New("\x1b[31m" + hostile()[3]), noon})
		for p.from = range states {
			lines := p.render(noon)
			if len(lines) != p.height {
				t.Fatalf("row %d at %dx%d: %d lines", p.from, p.width, p.height, len(lines))
			}
			for _, l := range lines {
				if w := displaywidth.String(l); w > p.width {
					t.Errorf("row %d at %dx%d is %d wide: %q", p.from, p.width, p.height, w, l)
				}
				if i := strings.IndexFunc(l, func(r rune) bool { return !strconv.IsPrint(r) }); i >= 0 {
					t.Errorf("row %d at %dx%d has %q: %q", p.from, p.width, p.height, l[i], l)
				}
			}
		}
	}
}

func TestTopShowsAnOutage(t *testing.T) {
	p := pageOf(80, 10, someStates()...)
	down := errors.New("dial tcp: connection refused")
	for i := range 3 {
		p.asked = noon.Add(time.Duration(1+i) * time.Second)
		p.take(look{nil, down, p.asked})
	}
	now := noon.Add(7 * time.Second)
	got := p.render(now)
	if got[2] != "7s old, failing since 12:00:01: dial tcp: connection refused" ||
		!strings.HasPrefix(got[4], "printer ") {
		t.Errorf("while it is down: %q", got)
	}
	p.take(look{someStates()[1:2], nil, now})
	if got := p.render(now); got[2] != "" || !strings.HasPrefix(got[4], "orders:42 ") ||
		!strings.Contains(got[0], "12:00:07") {
		t.Errorf("once it is back: %q", got)
	}
	p.asked = now
	if got := p.render(now.Add(2 * time.Second)); got[2] != "" {
		t.Errorf("two seconds are not long: %q", got[2])
	}
	if got := p.render(now.Add(5 * time.Second)); got[2] != "5s old, no answer from Redis since 12:00:07" {
		t.Errorf("no answer at all: %q", got[2])
	}
}

func TestTopTellsArrowsFromBytes(t *testing.T) {
	keys := make(chan string, 9)
	readKeys(bufio.NewReader(strings.NewReader("ss\x1b[B\x1b[Aq\x1b")), keys)
	close(keys)
	got := slices.Collect(func(yield func(string) bool) {
		for k := range keys {
			yield(k)
		}
	})
	if want := []string{"s", "s", "\x1b[B", "\x1b[A", "q", "\x1b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTopWithoutATerminalNamesTheCommandsForPipes(t *testing.T) {
	_, errOut, code := operate(t, theirRedis(t).Addr(), "top")
	if code != exitTrouble || !strings.Contains(errOut, "top needs a terminal; lockline ls") ||
		!strings.Contains(errOut, "lockline watch") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

func TestTopShowsTheNoteOfAHolderBehindItsLabel(t *testing.T) {
	s := heldState("fair", "printer", 3_000, 29_900)
	s.Holders[0].Note = "order 42"
	for width, want := range map[int]string{
		105: `42@db1 till 3, note "order `,
		200: `process 42 on db1 (till 3, note "order 42")`,
	} {
		if text := strings.Join(pageOf(width, 12, s).render(noon), "\n"); !strings.Contains(text, want) {
			t.Errorf("%d columns: %s", width, text)
		}
	}
}

func TestTopShowsTheLocksOfTheNodesThatAnswer(t *testing.T) {
	p, now := &page{}, time.Now()
	p.take(look{[]lockState{{Name: "x", Held: true}}, &incomplete{[]error{errors.New("node n: EOF")}}, now})
	if text := p.trouble(now); len(p.states) != 1 || p.at != now || !strings.Contains(text, "node n: EOF") {
		t.Errorf("%+v, %q", p, text)
	}
}
