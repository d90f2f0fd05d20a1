package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"
)

// noon is when the tests of the page happen.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.Local)

// heldState is a lock as a look has found it.
func heldState(kind, name string, heldMS, leaseMS int64, waits ...int64) lockState {
	s := lockState{Name: name, Kind: kind, age: age{Since: &noon, HeldMS: heldMS}}
	s.hold(holder{party: party{Owner: "session:7", Session: "session", Host: "db1", PID: 42, Label: "till 3"},
		Token: 7, RemainingMS: leaseMS, age: s.age})
	for i, age := range waits {
		s.Queue = append(s.Queue, waiter{party: party{Owner: fmt.Sprint("other:", i), Session: "other", Host: "db2", PID: 43, Label: "till 4"}, AgeMS: age})
	}
	return s
}

// pageOf shows locks.
func pageOf(width, height int, states ...lockState) *page {
	p := &page{server: "127.0.0.1:6379", pattern: "*", interval: time.Second}
	p.resize(width, height)
	p.take(look{begun: noon, at: noon, states: states})
	p.now = noon
	return p
}

// screenOf is the text on the screen.
func screenOf(p *page) (lines []string) {
	for _, l := range p.render() {
		lines = append(lines, l.text)
	}
	return lines
}

func names(p *page) (names []string) {
	for _, s := range p.states {
		names = append(names, s.Name)
	}
	return names
}

// typed presses keys.
func typed(p *page, keys ...string) {
	for _, k := range keys {
		p.key(k)
	}
}

func someStates() []lockState {
	return []lockState{
		heldState("fair", "printer", 3_000, 29_900, 61_000, 300), heldState("reentrant", "orders:42", 3_600_000, 12_340),
		heldState("redlock", "ledger", 9_000, 8_000),
		{Name: "boot", Kind: latchName, Count: 2},
		{Name: "text", Kind: "reentrant", Error: "its key is something else"},
	}
}

func TestTopFitsASmallScreen(t *testing.T) {
	p := pageOf(80, 16, someStates()...)
	want := `lockline top  12:00:00  every 1s  127.0.0.1:6379
locks: 5, held: 3, with waiters: 1, sorted by waiting

NAME             KIND      COUNT HELD FOR LEASE  WAITING FIRST  HOLDER
printer          fair      1     3s       29.9s  2       1m1s   process 42 on d…
boot             latch     2
ledger           redlock   1     9s       8s     ?              process 42 on d…
orders:42        reentrant 1     1h0m0s   12.3s  0              process 42 on d…
text             reentrant                                      its key is some…






q quit   s/←→ sort   p pause   ↑↓ select   enter inspect`
	if got := strings.Join(screenOf(p), "\n"); got != want {
		t.Errorf("it shows\n%s\nwant\n%s", got, want)
	}
}

func TestTopUsesALargeScreen(t *testing.T) {
	states := someStates()
	for i := range 100 {
		states = append(states, heldState("reentrant", fmt.Sprintf("more %02d", i), 1, 1000))
	}
	p := pageOf(200, 50, states...)
	got := screenOf(p)
	if len(got) != 50 || !strings.Contains(got[3], "TOKEN") || !strings.Contains(got[4], "process 42 on db1 (till 3)") {
		t.Errorf("it shows\n%s", strings.Join(got, "\n"))
	}
	if n := strings.Count(strings.Join(got, "\n"), "process 42 on db1 (till 3)"); n != 50-above-below-1 {
		t.Errorf("%d holders, want one for each of %d rows but that of the latch", n, p.room())
	}
}

func TestTopSorts(t *testing.T) {
	p := pageOf(80, 24,
		heldState("reentrant", "ending", 1_000, 500),
		heldState("fair", "longest wait", 2_000, 30_000, 9_000),
		heldState("reentrant", "busy", 9_000, 10_000),
		heldState("fair", "crowd", 3_000, 20_000, 100, 50, 10),
		lockState{Name: "a free one", Kind: "fair", Queue: []waiter{{AgeMS: 2_000}}})
	for _, want := range []struct {
		by    string
		names []string
	}{
		{"waiting", []string{"crowd", "a free one", "longest wait", "busy", "ending"}},
		{"first", []string{"longest wait", "a free one", "crowd", "busy", "ending"}},
		{"held for", []string{"busy", "crowd", "longest wait", "ending", "a free one"}},
		{"lease", []string{"ending", "busy", "crowd", "longest wait", "a free one"}},
		{"name", []string{"a free one", "busy", "crowd", "ending", "longest wait"}},
	} {
		if got := names(p); !slices.Equal(got, want.names) {
			t.Errorf("by %s: %q, want %q", want.by, got, want.names)
		}
		if head := screenOf(p)[1]; !strings.HasSuffix(head, "sorted by "+want.by) {
			t.Errorf("by %s, it says %q", want.by, head)
		}
		p.key("s")
	}
	typed(p, "left", "S", "right")
	if got := orders[p.by].name; got != "name" {
		t.Errorf("two back and one on is %v", got)
	}
	p.take(look{begun: noon, at: noon, states: []lockState{{Name: "b"}, {Name: "a"}}})
	if got := names(p); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the next look is not sorted: %q", got)
	}
}

func hostile() []string {
	return append(awkward(), "\x1b]2;hacked\x07", "\x1b[2J\x1b[31mred", "a\r\nb\tc", "\u202egnp.exe", "\u200b\u200d", "\x9b31m", "\x7f",
		strings.Repeat("long ", 5000), strings.Repeat("長い", 50), strings.Repeat("👩‍👩‍👧‍👦", 20), "e"+strings.Repeat("\u0301", 300), "\u0301", "🇩🇪🇩")
}

// Names, labels, hosts and errors are what others have written.
func TestTopShowsWhatOthersWroteSafely(t *testing.T) {
	var states []lockState
	for _, name := range hostile() {
		s := heldState("fair", name, 1, 1000, 10)
		s.Holders[0].party = party{Owner: name, Session: name, Host: name, PID: 1, Label: name}
		s.Queue[0].party = s.Holders[0].party
		states = append(states, s, lockState{Name: name, Kind: name, Error: name})
	}
	check := func(p *page, what string) {
		t.Helper()
		lines := p.render()
		if len(lines) != p.height {
			t.Fatalf("%s at %dx%d: %d lines", what, p.width, p.height, len(lines))
		}
		for _, l := range lines {
			if w := displaywidth.String(l.text); w > p.width {
				t.Errorf("%s at %dx%d is %d wide: %q", what, p.width, p.height, w, l.text)
			}
			if i := strings.IndexFunc(l.text, func(r rune) bool { return !strconv.IsPrint(r) }); i >= 0 {
				t.Errorf("%s at %dx%d has %q: %q", what, p.width, p.height, l.text[i], l.text)
			}
		}
	}
	for _, size := range [][2]int{{80, 24}, {200, 50}, {1, 1}, {3, 5}, {12, 7}, {40, 8}, {0, 0}} {
		p := pageOf(size[0], size[1], states...)
		p.server, p.pattern = "host\x1b[31m", "\x1b*"
		for i := range len(states) {
			check(p, fmt.Sprint("row ", i))
			p.key("enter")
			check(p, fmt.Sprint("lock ", i))
			typed(p, "esc", "down")
		}
		p.take(look{begun: noon, at: noon, err: errors.New("\x1b[31m" + hostile()[3])})
		check(p, "an error")
	}
}

func TestTopScrolls(t *testing.T) {
	var states []lockState
	for i := range 40 {
		states = append(states, heldState("reentrant", fmt.Sprintf("lock %02d", i), 1, 1000))
	}
	p := pageOf(80, 22, states...) // 17 of them fit
	at := func(cursor, from int) {
		t.Helper()
		if p.cursor != cursor || p.from != from {
			t.Errorf("cursor %d and first row %d, want %d and %d", p.cursor, p.from, cursor, from)
		}
		l := p.render()[above+cursor-from]
		if !strings.HasPrefix(l.text, fmt.Sprintf("lock %02d", cursor)) || l.style != reverse {
			t.Errorf("it shows %q at the cursor", l)
		}
	}
	at(0, 0)
	typed(p, "up")
	at(0, 0)
	for range 17 {
		p.key("down")
	}
	at(17, 1)
	typed(p, "pgdn")
	at(34, 18)
	typed(p, "end")
	at(39, 23)
	typed(p, "k", "k", "j")
	at(38, 23)
	typed(p, "home")
	at(0, 0)
	typed(p, "end")
	p.take(look{begun: noon, at: noon, states: states[:20]}) // the others are free by now
	at(19, 3)
	p.resize(80, 8)
	if p.room() != 3 || p.cursor != 19 || p.from != 17 {
		t.Errorf("on a lower screen: %d rows from %d, cursor %d", p.room(), p.from, p.cursor)
	}
	p.resize(80, 22)
	at(19, 3)
	p.take(look{begun: noon, at: noon})
	if got := screenOf(p); p.cursor != 0 || got[above] != "" || got[1] != "locks: 0, held: 0, with waiters: 0, sorted by waiting" {
		t.Errorf("without a lock: %q", got)
	}
	p.key("enter")
	if p.open != nil {
		t.Error("there is no lock to inspect")
	}
}

func TestTopInspectsALock(t *testing.T) {
	ages := make([]int64, 30)
	other := heldState("reentrant", "a", 1, 1)
	printer := heldState("fair", "printer", 3_000, 29_900, ages...)
	p := pageOf(80, 24, other, printer)
	typed(p, "home", "i")
	got := screenOf(p)
	if got[4] != "printer  fair, held" || !strings.Contains(got[6], "process 42 on db1 (till 3), owner session:7") {
		t.Errorf("it shows %q", got)
	}
	typed(p, "end")
	if got := screenOf(p); !strings.Contains(got[22], "waiter 30") {
		t.Errorf("the end of the queue: %q", got)
	}
	p.key("home")
	p.take(look{begun: noon, at: noon, states: []lockState{other, heldState("fair", "printer", 4_000, 29_900)}})
	if got := screenOf(p); got[4] != "printer  fair, held" || !strings.Contains(got[7], "for 4s") {
		t.Errorf("after another look: %q", got)
	}
	typed(p, "esc")
	if p.open != nil || p.cursor != 1 || !strings.HasPrefix(screenOf(p)[5], "printer ") {
		t.Errorf("Esc leads to row %d of %q", p.cursor, screenOf(p))
	}
	p.key("enter")
	p.take(look{begun: noon, at: noon, states: []lockState{other}})
	if got := screenOf(p); got[4] != "printer  fair, free" {
		t.Errorf("once it is free: %q", got)
	}
	typed(p, "esc")
	if p.cursor != 0 {
		t.Errorf("Esc leads to row %d", p.cursor)
	}
	p.take(look{begun: noon, at: noon, states: someStates()[4:]})
	p.key("enter")
	if got := screenOf(p); got[4] != "text  its key is something else" {
		t.Errorf("what cannot be read: %q", got)
	}
}

func TestTopShowsAnOutage(t *testing.T) {
	p := pageOf(80, 24, someStates()...)
	down := errors.New("dial tcp: connection refused")
	for i := range 3 {
		at := noon.Add(time.Duration(1+i) * time.Second)
		p.take(look{begun: at, at: at, err: down})
	}
	p.now = noon.Add(7 * time.Second)
	got := screenOf(p)
	if got[2] != "7s old, failing since 12:00:01: dial tcp: connection refused" || !strings.HasPrefix(got[4], "printer ") {
		t.Errorf("while it is down: %q", got)
	}
	p.take(look{begun: p.now, at: p.now, states: someStates()[1:2]})
	if got := screenOf(p); got[2] != "" || !strings.HasPrefix(got[4], "orders:42 ") || !strings.Contains(got[0], "12:00:07") {
		t.Errorf("once it is back: %q", got)
	}
	p.asked = p.now
	p.now = p.now.Add(2 * time.Second)
	if got := screenOf(p); got[2] != "" {
		t.Errorf("two seconds are not long: %q", got[2])
	}
	p.now = p.now.Add(3 * time.Second)
	if got := screenOf(p); got[2] != "5s old, no answer from Redis since 12:00:07" {
		t.Errorf("no answer at all: %q", got[2])
	}
}

func TestTopPausesAndEnds(t *testing.T) {
	p := pageOf(80, 24, someStates()...)
	if typed(p, "p"); !p.paused || !strings.HasPrefix(screenOf(p)[0], "lockline top  PAUSED") {
		t.Errorf("after p: %q", screenOf(p)[0])
	}
	p.take(look{begun: noon, at: noon}) // was under way
	if got := names(p); len(got) != 5 {
		t.Errorf("while it is paused: %q", got)
	}
	if p.key("p") != lookNow || p.paused {
		t.Error("another p does not go on")
	}
	if p.key("q") != quit || p.key("ctrl-c") != interrupt || p.key("x") != goOn {
		t.Error("q and ctrl-C end it, and other keys do not")
	}
}

func TestTopWithoutATerminalNamesTheCommandsForPipes(t *testing.T) {
	_, errOut, code := operate(t, "127.0.0.1:1", "top") // where no Redis is
	if code != exitTrouble || !strings.Contains(errOut, "top needs a terminal; lockline ls") || !strings.Contains(errOut, "lockline watch") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
