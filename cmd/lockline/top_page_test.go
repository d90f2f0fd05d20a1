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

// heldRow is a lock as a look at it has found it.
func heldRow(letter, name string, token, leaseMS int64, waits ...int64) topRow {
	kind := map[string]string{"r": "reentrant", "f": "fair", "q": "redlock"}[letter]
	s := &lockState{Name: name, Kind: kind, Held: true, Count: 1, Token: token, RemainingMS: leaseMS,
		Holder: &party{Owner: "session:7", Session: "session", Host: "db1", PID: 42, Label: "till 3"}}
	for i, age := range waits {
		s.Queue = append(s.Queue, waiter{party: party{Owner: fmt.Sprint("other:", i), Session: "other", Host: "db2", PID: 43, Label: "till 4"}, AgeMS: age})
	}
	r := topRow{found: found{letter, name}, kind: kind, queues: letter != "q", changes: -1}
	r.saw(s)
	return r
}

// unseen is a lock of which only the keys were seen.
func unseen(letter, name string) topRow {
	r := heldRow(letter, name, 1, 1)
	r.state = nil
	return r
}

// pageOf shows rows.
func pageOf(width, height int, rows ...topRow) *page {
	p := newPage("127.0.0.1:6379", "*", time.Second)
	p.resize(width, height)
	p.take(sample{of: p.wish(), begun: noon, at: noon, rows: rows})
	p.now = noon
	return p
}

// screenOf is the text on the screen.
func screenOf(p *page) (lines []string) {
	for _, l := range p.render() {
		lines = append(lines, strings.TrimRight(l.String(), " "))
	}
	return lines
}

func names(p *page) (names []string) {
	for _, r := range p.list() {
		names = append(names, r.name)
	}
	return names
}

// typed presses keys: each of those that are named, and each character of others.
func typed(p *page, keys ...string) {
	for _, k := range keys {
		p.key(k)
	}
}

func someRows() []topRow {
	return []topRow{
		heldRow("f", "printer", 5, 29_900, 61_000, 300), heldRow("r", "orders:42", 7, 12_340),
		heldRow("q", "ledger", 9, 8_000), unseen("r", "stock"),
		{found: found{"r", "text"}, kind: "reentrant", changes: -1, parts: parts{held: true}, queues: true, state: &lockState{Error: "its key is something else"}},
	}
}

func TestTopFitsASmallScreen(t *testing.T) {
	p := pageOf(80, 24, someRows()...)
	p.take(sample{of: p.wish(), begun: noon, at: noon.Add(time.Second), rows: append(someRows()[1:], heldRow("f", "printer", 6, 29_900, 61_000, 300))})
	want := `lockline top  12:00:01  every 1s  127.0.0.1:6379
5 locks, 5 held, 1 with waiters (1 not known), sorted by waiting

NAME              KIND      STATE LEASE WAITING FIRST  CHANGES HOLDER
printer           fair      held  29.9s       2 61.0s   ≥1.0/s process 42 on db…
orders:42         reentrant held  12.3s       0            0/s process 42 on db…
stock             reentrant held              0
ledger            redlock   held   8.0s       ?            0/s process 42 on db…
text              reentrant error             ?                its key is somet…












printer, fair
process 42 on db1 (till 3), owner session:7, token 6
q quit   s/←→ sort   / filter   p pause   ↑↓ select   enter inspect`
	if got := strings.Join(screenOf(p), "\n"); got != want {
		t.Errorf("it shows\n%s\nwant\n%s", got, want)
	}
}

func TestTopUsesALargeScreen(t *testing.T) {
	rows := someRows()
	for i := range 100 {
		rows = append(rows, heldRow("r", fmt.Sprintf("more %02d", i), 1, 1000))
	}
	p := pageOf(200, 50, rows...)
	got := screenOf(p)
	if len(got) != 50 || got[1] != "105 locks, 105 held, 1 with waiters (1 not known), sorted by waiting" || !strings.HasSuffix(got[3], "OWNER") {
		t.Errorf("it shows\n%s", strings.Join(got, "\n"))
	}
	if n := strings.Count(strings.Join(got, "\n"), "process 42 on db1 (till 3)"); n != 50-above-below-0+1 {
		t.Errorf("%d holders in full, want one for each of %d rows and one below", n, p.room())
	}
	if !strings.Contains(got[4], "process 42 on db1 (till 3)") || !strings.Contains(got[4], "session:7") {
		t.Errorf("the first row: %q", got[4])
	}
}

func TestTopSorts(t *testing.T) {
	longest := heldRow("f", "longest wait", 1, 30_000, 9_000)
	crowded := heldRow("f", "crowd", 1, 20_000, 100, 50, 10)
	ending := heldRow("r", "ending", 1, 500)
	busy := heldRow("r", "busy", 1, 10_000)
	free := topRow{found: found{"r", "a free one"}, kind: "reentrant", queues: true, parts: parts{queue: true},
		state: &lockState{Queue: []waiter{{AgeMS: 2_000}}}, changes: -1}
	p := pageOf(80, 24, ending, longest, busy, crowded, free)
	for i := range 3 {
		busy.state = &lockState{Held: true, RemainingMS: 10_000, Holder: &party{Owner: "s:1"}, Token: int64(2 + i)}
		p.take(sample{of: p.wish(), begun: noon, at: noon.Add(time.Duration(1+i) * time.Second), rows: []topRow{ending, longest, busy, crowded, free}})
	}
	for _, want := range []struct {
		by    string
		names []string
	}{
		{"waiting", []string{"crowd", "a free one", "longest wait", "busy", "ending"}},
		{"first", []string{"longest wait", "a free one", "crowd", "busy", "ending"}},
		{"lease", []string{"ending", "busy", "crowd", "longest wait", "a free one"}},
		{"changes", []string{"busy", "a free one", "crowd", "ending", "longest wait"}},
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
	if p.by != byWaiting {
		t.Errorf("after all of them comes %v", p.by)
	}
	typed(p, "left", "S", "right")
	if p.by != byName {
		t.Errorf("two back and one on is %v", p.by)
	}
}

func TestTopFilters(t *testing.T) {
	rows := []topRow{heldRow("r", "orders:1", 1, 1), heldRow("r", "orders:2", 1, 1), heldRow("r", "stock q", 1, 1), heldRow("r", "a\nb", 1, 1)}
	p := pageOf(80, 24, rows...)
	typed(p, "down", "down", "/", "o", "r", "d")
	if got := names(p); !slices.Equal(got, []string{"orders:1", "orders:2"}) || p.cursor != 0 {
		t.Errorf("while it is typed: %q, cursor %d", got, p.cursor)
	}
	if got := screenOf(p); !strings.Contains(got[1], "2 with ord in the name") || !strings.HasPrefix(got[23], "filter: ord") {
		t.Errorf("it shows %q and %q", got[1], got[23])
	}
	typed(p, "enter")
	if w := p.wish(); w.filter != "ord" || p.key("q") != quit {
		t.Errorf("once it is kept: %+v", w)
	}
	typed(p, "/", "ctrl-u", "q", "backspace", "backspace", "k", " ")
	if got := names(p); !slices.Equal(got, []string{"stock q"}) {
		t.Errorf("another one, with keys that are commands elsewhere: %q", got)
	}
	typed(p, "esc")
	if got := names(p); len(got) != 2 || p.typing {
		t.Errorf("Esc leads back to %q", got)
	}
	typed(p, "/", "ctrl-u", `\`, "n")
	if got := names(p); !slices.Equal(got, []string{"a\nb"}) {
		t.Errorf("as it is shown: %q", got)
	}
	typed(p, "enter", "esc")
	if got := names(p); len(got) != 4 {
		t.Errorf("without a filter: %q", got)
	}
	if typed(p, "/"); p.key("ctrl-c") != interrupt {
		t.Error("ctrl-C does not end it while a filter is typed")
	}
}

func hostile() []string {
	return append(awkward(), "\x1b]2;hacked\x07", "\x1b[2J\x1b[31mred", "a\r\nb\tc", "\u202egnp.exe", "\u200b\u200d", "\x9b31m", "\x7f",
		strings.Repeat("long ", 5000), strings.Repeat("長い", 50), strings.Repeat("👩‍👩‍👧‍👦", 20), "e"+strings.Repeat("\u0301", 300), "\u0301", "🇩🇪🇩")
}

// Names, labels, hosts and errors are what others have written.
func TestTopShowsWhatOthersWroteSafely(t *testing.T) {
	var rows []topRow
	for _, name := range hostile() {
		r := heldRow("f", name, 1, 1000, 10)
		r.state.Holder = &party{Owner: name, Session: name, Host: name, PID: 1, Label: name}
		r.state.Queue[0].party = *r.state.Holder
		strange := heldRow("r", name, 1, 1000)
		strange.kind, strange.state = name, &lockState{Name: name, Kind: name, Error: name}
		rows = append(rows, r, strange)
	}
	check := func(p *page, what string) {
		t.Helper()
		lines := p.render()
		if len(lines) != p.height {
			t.Fatalf("%s at %dx%d: %d lines", what, p.width, p.height, len(lines))
		}
		for _, l := range lines {
			text := l.String()
			if w := displaywidth.String(text); w > p.width {
				t.Errorf("%s at %dx%d is %d wide: %q", what, p.width, p.height, w, text)
			}
			if i := strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }); i >= 0 {
				t.Errorf("%s at %dx%d has %q: %q", what, p.width, p.height, text[i], text)
			}
		}
	}
	for _, size := range [][2]int{{80, 24}, {200, 50}, {1, 1}, {3, 5}, {12, 7}, {40, 8}, {0, 0}} {
		p := pageOf(size[0], size[1], rows...)
		p.server, p.pattern, p.filter = "host\x1b[31m", "\x1b*", ""
		for i := range len(rows) {
			check(p, fmt.Sprint("row ", i))
			p.key("enter")
			check(p, fmt.Sprint("lock ", i))
			typed(p, "esc", "down")
		}
		p.take(sample{begun: noon, at: noon, err: errors.New("\x1b[31m" + hostile()[3])})
		typed(p, "/", "é", "\x1b")
		check(p, "an error and a filter")
	}
}

func TestTopScrolls(t *testing.T) {
	var rows []topRow
	for i := range 40 {
		rows = append(rows, heldRow("r", fmt.Sprintf("lock %02d", i), 1, 1000))
	}
	p := pageOf(80, 24, rows...) // 17 of them fit
	at := func(cursor, from int) {
		t.Helper()
		if p.cursor != cursor || p.from != from {
			t.Errorf("cursor %d and first row %d, want %d and %d", p.cursor, p.from, cursor, from)
		}
		if got := screenOf(p); !strings.HasPrefix(got[above], fmt.Sprintf("lock %02d", from)) || got[24-below] != fmt.Sprintf("lock %02d, reentrant", cursor) {
			t.Errorf("it shows %q first, and %q", got[above], got[24-below])
		}
		if w := p.wish(); w.from != from || w.rows != 17 {
			t.Errorf("it wants %d from %d", w.rows, w.from)
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
	p.take(sample{of: p.wish(), begun: noon, at: noon, rows: rows[:20]}) // the others are free by now
	at(19, 3)
	p.resize(80, 10)
	if p.room() != 3 || p.cursor != 19 || p.from != 17 {
		t.Errorf("on a lower screen: %d rows from %d, cursor %d", p.room(), p.from, p.cursor)
	}
	p.resize(80, 24)
	at(19, 3)
	p.take(sample{of: p.wish(), begun: noon, at: noon})
	if got := screenOf(p); p.cursor != 0 || got[above] != "" || got[1] != "0 locks, 0 held, 0 with waiters, sorted by waiting" {
		t.Errorf("without a lock: %q", got)
	}
	p.key("enter")
	if p.lock.name != "" {
		t.Error("there is no lock to inspect")
	}
}

func TestTopInspectsALock(t *testing.T) {
	ages := make([]int64, 30)
	p := pageOf(80, 24, heldRow("r", "a", 1, 1), heldRow("f", "printer", 5, 29_900, ages...))
	typed(p, "home", "i")
	if w := p.wish(); w.lock != (found{"f", "printer"}) || w.pattern != "" {
		t.Errorf("it wants %+v", w)
	}
	got := screenOf(p)
	if got[3] != "printer  fair, held" || !strings.Contains(got[4], "process 42 on db1 (till 3)") || !strings.Contains(got[5], "session:7") {
		t.Errorf("it shows %q", got)
	}
	typed(p, "end")
	if got := screenOf(p); !strings.Contains(got[22], "waiter 30") {
		t.Errorf("the end of the queue: %q", got)
	}
	typed(p, "home", "down")
	if got := screenOf(p); !strings.Contains(got[3], "process 42") {
		t.Errorf("one line down: %q", got[3])
	}
	p.take(sample{of: wish{lock: found{"r", "a"}}, at: noon, state: lockState{Name: "a"}}) // late, of another one
	if got := screenOf(p); !strings.Contains(got[3], "process 42") {
		t.Errorf("it shows another lock: %q", got[3])
	}
	p.take(sample{of: p.wish(), at: noon.Add(time.Minute), state: lockState{Name: "printer", Kind: "fair", Token: 5}})
	p.key("home")
	if got := screenOf(p); got[3] != "printer  fair, free" || !strings.Contains(got[0], "12:01:00") {
		t.Errorf("once it is free: %q", got)
	}
	typed(p, "esc")
	if got := screenOf(p); p.lock.name != "" || !strings.Contains(got[0], "12:00:00") {
		t.Errorf("Esc leads to %q, which is as old as it was", got[0])
	}
}

func TestTopShowsAnOutage(t *testing.T) {
	p := pageOf(80, 24, someRows()...)
	down := errors.New("dial tcp: connection refused")
	for i := range 3 {
		at := noon.Add(time.Duration(1+i) * time.Second)
		p.take(sample{of: p.wish(), begun: at, at: at, err: down})
	}
	p.now = noon.Add(7 * time.Second)
	got := screenOf(p)
	if got[2] != "7s old, failing since 12:00:01: dial tcp: connection refused" || !strings.HasPrefix(got[4], "printer ") {
		t.Errorf("while it is down: %q", got)
	}
	typed(p, "enter")
	if got := screenOf(p); !strings.HasPrefix(got[2], "7s old, failing") || !strings.HasPrefix(got[3], "printer ") {
		t.Errorf("an inspected lock while it is down: %q", got)
	}
	typed(p, "esc")
	p.take(sample{of: p.wish(), begun: p.now, at: p.now, rows: someRows()[1:2]})
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

func TestTopCountsTheChangesThatItSees(t *testing.T) {
	p := pageOf(80, 24)
	second := 0
	saw := func(r topRow) string {
		second++
		p.take(sample{of: p.wish(), begun: noon, at: noon.Add(time.Duration(second) * time.Second), rows: []topRow{r}})
		i := slices.IndexFunc(columns, func(c column) bool { return c.name == "CHANGES" })
		return columns[i].cell(p.list()[0])
	}
	hold := func(letter string, token int64) topRow { return heldRow(letter, "x", token, 30_000) }
	free := topRow{found: found{"r", "x"}, kind: "reentrant", queues: true, parts: parts{queue: true}, state: &lockState{Queue: make([]waiter, 1)}}
	for i, step := range []struct {
		row  topRow
		want string
	}{
		{hold("r", 1), ""}, {hold("r", 1), "0/s"}, {hold("r", 9), "≥0.5/s"}, {hold("r", 9), "≥0.3/s"},
		{hold("r", 900), "≥0.5/s"}, // a thousand tokens are not a thousand hand-overs
	} {
		if got := saw(step.row); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	saw(free)
	saw(hold("r", 900))
	if n := p.past[found{"r", "x"}].changes() * 6; n != 2 {
		t.Errorf("it was free, and then the same holder has it: %v changes", n)
	}
	for range 20 {
		saw(hold("r", 901))
	}
	if got := p.past[found{"r", "x"}].changes(); got != 0 {
		t.Errorf("what is long past still counts: %v", got)
	}
	saw(hold("q", 1))
	saw(hold("q", 2)) // of the same owner
	if got := p.past[found{"q", "x"}].changes(); got != 0 {
		t.Errorf("a RedLock whose token grew was not handed over: %v", got)
	}
	second += 120
	free.name = "y"
	saw(free)
	next := hold("r", 1)
	next.name = "y"
	saw(next)
	if got := p.past[found{"r", "y"}].changes(); got != 0 {
		t.Errorf("nobody had it at the first look, and that is no other holder: %v", got)
	}
	if len(p.past) != 1 {
		t.Errorf("%d locks are remembered, want the one that is there", len(p.past))
	}
}

func TestTopPausesAndEnds(t *testing.T) {
	p := pageOf(80, 24, someRows()...)
	if typed(p, "p"); !p.paused || !strings.HasPrefix(screenOf(p)[0], "lockline top  PAUSED") {
		t.Errorf("after p: %q", screenOf(p)[0])
	}
	p.take(sample{of: p.wish(), begun: noon, at: noon}) // was under way
	if got := names(p); len(got) != 5 || p.ready() {
		t.Errorf("while it is paused: %q, and a look may begin: %v", got, p.ready())
	}
	if typed(p, "enter", "p"); p.paused || !p.ready() {
		t.Error("another p, while a lock is inspected, does not go on")
	}
	if p.asked = noon; p.ready() {
		t.Error("two looks at once")
	}
	if p.key("q") != quit || p.key("ctrl-c") != interrupt || p.key("x") != goOn {
		t.Error("q and ctrl-C end it, and other keys do not")
	}
}

func TestTopShortensTimes(t *testing.T) {
	for ms, want := range map[int64]string{0: "0.0s", 340: "0.3s", 29_900: "29.9s", 99_900: "99.9s", 100_000: "1m", 3_600_000: "60m", 7_200_000: "2h", 400 * 3_600_000: "16d"} {
		if got := brief(ms); got != want {
			t.Errorf("%d ms are %q, want %q", ms, got, want)
		}
	}
}

func TestTopWithoutATerminalNamesTheCommandsForPipes(t *testing.T) {
	_, errOut, code := operate(t, "127.0.0.1:1", "top") // where no Redis is
	if code != exitTrouble || !strings.Contains(errOut, "top needs a terminal; lockline ls") || !strings.Contains(errOut, "lockline watch") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
