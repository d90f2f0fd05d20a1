package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
	"golang.org/x/term"
)

const topDescription = `Shows the locks that lockline ls PATTERN lists, on a page that is refreshed. It
needs a terminal: in a pipe, use lockline ls or lockline watch.

The next look begins --interval after the last one has ended. If a look takes longer
than --interval, the next one begins after a pause of the same length.

Keys:

      s         sort by waiting, held for, lease or name
      up, down  scroll (or k, j)
      q         quit, with exit code 0 (ctrl-C: 130)`

func topCommand() *cli.Command {
	return operatorCommand(&cli.Command{
		Name: "top", Usage: "watch all locks on a page that is refreshed", ArgsUsage: onePattern,
		Description: topDescription,
		Flags: []cli.Flag{&cli.DurationFlag{Name: "interval", Value: time.Second,
			Usage: "time between two looks"}},
	}, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		out := fileOf(cmd.Root().Writer)
		if !terminal(out) || !terminal(os.Stdin) || os.Getenv("TERM") == "dumb" {
			return errors.New("top needs a terminal; lockline ls lists the locks once, " +
				"and lockline watch NAME writes a line for each change")
		}
		server := targetOf(cmd).host()
		if _, ok := o.rdb.(*redis.ClusterClient); ok {
			server = "Cluster of " + server
		}
		return o.top(ctx, &page{server: server, pattern: o.pattern, interval: cmd.Duration("interval")}, out)
	})
}

func terminal(f any) bool {
	file := fileOf(f)
	return file != nil && term.IsTerminal(int(file.Fd()))
}

// Escape sequences for a terminal. takeScreen switches to another screen, without a cursor and without
// wrapping of wide lines. giveScreen switches back.
const (
	takeScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	giveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// top looks at the locks at intervals and shows them, until a key or a signal ends top. If the first look
// fails, top returns the error of this look.
func (o *operator) top(ctx context.Context, p *page, out *os.File) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	before, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return fmt.Errorf("top: this terminal cannot be used: %w", err)
	}
	defer func() { _ = term.Restore(int(os.Stdin.Fd()), before) }()
	fmt.Fprint(out, takeScreen)
	defer fmt.Fprint(out, giveScreen)

	keys := make(chan string)
	go readKeys(bufio.NewReader(os.Stdin), keys) // ends with the program
	looks := make(chan look, 1)                  // buffered, because the last look may have no receiver
	due := time.NewTimer(0)
	seconds := time.Tick(time.Second)
	for {
		if p.width, p.height, err = term.GetSize(int(out.Fd())); err != nil {
			return fmt.Errorf("top: the size of this terminal: %w", err)
		}
		fmt.Fprintf(out, "\x1b[H%s\x1b[K\x1b[J", strings.Join(p.render(time.Now()), "\x1b[K\r\n"))
		select {
		case <-ctx.Done():
			return &exitError{code: exitInterrupted}
		case <-seconds:
		case <-due.C:
			p.asked = time.Now()
			go func() {
				states, err := o.list(ctx)
				looks <- look{states, err, time.Now()}
			}()
		case l := <-looks:
			took := l.at.Sub(p.asked)
			if p.take(l); p.at.IsZero() {
				return l.err
			}
			due.Reset(max(p.interval, took, 100*time.Millisecond))
		case k := <-keys:
			switch k {
			case "q":
				return nil
			case "\x03": // ctrl-C
				return &exitError{code: exitInterrupted}
			case "s":
				p.by++
			case "k", "\x1b[A", "\x1bOA": // up
				p.from--
			case "j", "\x1b[B", "\x1bOB": // down
				p.from++
			}
		}
	}
}

// readKeys sends the keys that are pressed. A key is one byte, or the three bytes of an arrow key, which
// arrive together.
func readKeys(in *bufio.Reader, keys chan<- string) {
	for {
		first, err := in.ReadByte()
		if err != nil {
			return
		}
		key := []byte{first}
		if first == '\x1b' && in.Buffered() >= 2 {
			key = append(key, 0, 0)
			_, _ = io.ReadFull(in, key[1:])
		}
		keys <- string(key)
	}
}

// A page is the page that lockline top shows.
type page struct {
	server   string // address for people
	pattern  string
	interval time.Duration

	width, height int
	by            int // number of times that the order was changed
	from          int // index of the first row on the screen

	states  []lockState // result of the last look that succeeded, at least on some nodes
	at      time.Time   // time of that look
	err     error       // error of the last look
	failing time.Time   // start of the first of the looks that failed in a row
	asked   time.Time   // start of the present look; zero if there is none
}

// A look is the result of one look at all locks.
type look struct {
	states []lockState
	err    error
	at     time.Time
}

func (p *page) take(l look) {
	if l.err == nil || errors.As(l.err, new(*incomplete)) {
		p.states, p.at = l.states, l.at
	}
	if l.err != nil && p.err == nil {
		p.failing = p.asked
	}
	p.err, p.asked = l.err, time.Time{}
}

// orders has the orders of the list. Locks that are equal in an order are sorted by name.
var orders = []struct {
	name    string
	compare func(a, b lockState) int
}{
	{"waiting", func(a, b lockState) int { return cmp.Compare(len(b.Queue), len(a.Queue)) }},
	{"held for", func(a, b lockState) int { return cmp.Compare(b.HeldMS, a.HeldMS) }},
	{"lease", func(a, b lockState) int { return cmp.Compare(leaseLeft(a), leaseLeft(b)) }},
	{"name", func(a, b lockState) int { return 0 }},
}

// leaseLeft returns the rest of the lease in ms. A lock without a lease comes last in this order.
func leaseLeft(s lockState) int64 {
	if !s.leased() {
		return math.MaxInt64
	}
	return s.RemainingMS
}

// render returns the lines of the screen. The number of lines is the height of the screen, and no line is
// wider than the screen.
func (p *page) render(now time.Time) []string {
	const around = 5 // three lines above the table, the names of the columns, and the keys
	order := orders[p.by%len(orders)]
	states := slices.SortedStableFunc(slices.Values(p.states), order.compare)
	room := max(0, p.height-around)
	p.from = max(0, min(p.from, len(states)-room))
	states = states[p.from:min(p.from+room, len(states))]

	title := "lockline top"
	if !p.at.IsZero() {
		title += "  " + p.at.Format(clock)
	}
	lines := []string{
		title + fmt.Sprintf("  every %v  %s  %s", p.interval, printable(p.server), printable(p.pattern)),
		fmt.Sprintf("%d of %d locks, sorted by %s", len(states), len(p.states), order.name),
		p.trouble(now),
	}
	lines = append(lines, p.table(states)...)
	for len(lines) < p.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, p.height-1)], "q quit   s sort   ↑↓ scroll")[:p.height]
	for i := range lines {
		lines[i] = strings.TrimRight(fit(lines[i], p.width), " ")
	}
	return lines
}

const clock = "15:04:05"

// trouble returns a line about a look that has failed or takes long. Otherwise it returns "".
func (p *page) trouble(now time.Time) (text string) {
	switch {
	case p.err != nil:
		text = "failing since " + p.failing.Format(clock) + ": " + printable(say(p.err))
	case !p.asked.IsZero() && now.Sub(p.asked) > max(2*time.Second, 2*p.interval):
		text = "no answer from Redis since " + p.asked.Format(clock)
	default:
		return ""
	}
	if !p.at.IsZero() {
		text = fmt.Sprintf("%v old, ", now.Sub(p.at).Round(time.Second)) + text
	}
	return text
}

// table returns the line with the names of the columns, and the rows below it.
func (p *page) table(states []lockState) (lines []string) {
	shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return c.name == "TOKEN" && p.width < wideScreen || c.name == "COUNT" && p.width < 100
	})
	if last := &shown[len(shown)-1]; p.width < wideScreen { // the column HOLDER
		last.cell = func(s lockState) string { return cmp.Or(printable(s.Error), s.brieflyHeldBy()) }
	}
	left, shares := p.width-len(shown)+1, 0
	for _, c := range shown {
		if left -= c.width; c.width == 0 {
			shares++
		}
	}
	for _, cells := range table(shown, states) {
		for i, c := range shown {
			cells[i] = fit(cells[i], cmp.Or(c.width, max(4, left/shares)))
		}
		lines = append(lines, strings.Join(cells, " "))
	}
	return lines
}

// wideScreen is the number of columns that a screen needs for tokens and for holders in full.
const wideScreen = 110

// brieflyHeldBy returns a short text with the first holder, so that a narrow column shows the process and its
// host. If the process is not known, or if the full text has a remark, such as that the holder may be idle,
// the text is not shortened.
func (s lockState) brieflyHeldBy() string {
	if len(s.Holders) == 0 {
		return ""
	}
	h := s.Holders[0]
	if h.PID == 0 || h.Party != "" || h.Lingers || strings.HasSuffix(h.Owner, "~") {
		return s.heldBy()
	}
	text := fmt.Sprintf("%s%d@%s", share(h.Side, h.Permits), h.PID, printable(h.Host))
	if more := len(s.Holders) - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return strings.TrimRight(text+" "+printable(h.Label)+h.noted(), " ")
}

// fit makes text as wide as a column. A text that is too long ends with an ellipsis. The text must have no
// control characters, see printable.
func fit(text string, width int) string {
	text = displaywidth.TruncateString(text, max(0, width), "…")
	if displaywidth.String(text) > width { // no room for the ellipsis
		return strings.Repeat(" ", max(0, width))
	}
	return text + strings.Repeat(" ", width-displaywidth.String(text))
}
