package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
	"golang.org/x/term"
)

const topDescription = `Shows the locks that are held or waited for, on a page that is refreshed. PATTERN is
that of lockline ls. It needs a terminal: in a pipe, use lockline ls or lockline watch.

WAITING is the length of the queue in Redis, and FIRST is how long its first entry has
waited. Goroutines of a process can share an entry. The queue of a RedLock, that of
a lock with --redisson, and what waits for a latch are not known. Of a latch that is
counted down, STATE is the count, HOLDER the party whose lease ends first, and LEASE
what is left of that.

CHANGES is how often a sample found another holder than the sample before, over the
last ten intervals. It is a lower bound of the hand-overs: of several between two
samples one is seen, and those within a process are not in Redis.

Each sample is a SCAN, as of ls, and one request for each lock on the screen. Sorting by
waiting or first also asks about all locks with waiters. Sorting by lease or changes
asks about all locks, and so does --redisson. All latches are asked about. The next sample begins
--interval after the last one has ended. While a lock is inspected, only that one is
asked about.

Keys:

      s, left, right  sort by waiting, first, lease, changes or name
      /               show only names that contain a text, until Esc
      up, down        select a lock, which is shown in full at the bottom

      Enter, i        inspect the selected lock, until Esc
      p               pause, and go on
      q               quit, with exit code 0 (ctrl-C: 130)`

func topCommand() *cli.Command {
	c := operatorCommand(&cli.Command{
		Name: "top", Usage: "watch all locks on a page that is refreshed", UsageText: "lockline top [options] [PATTERN]",
		Description: topDescription,
		Flags:       []cli.Flag{&cli.DurationFlag{Name: "interval", Value: time.Second, Usage: "between two samples"}},
	}, false, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		server := targetOf(cmd).host()
		if _, ok := o.rdb.(*redis.ClusterClient); ok {
			server = "Cluster of " + server
		}
		return o.top(ctx, newPage(server, cmp.Or(cmd.Args().First(), "*"), cmd.Duration("interval")))
	})
	connect := c.Action
	c.Action = func(ctx context.Context, cmd *cli.Command) error { // what is wrong with the call is said before
		if err := topCall(cmd); err != nil {
			return err
		}
		return connect(ctx, cmd)
	}
	return c
}

// topCall says what is wrong with the command line, or with where it is called.
func topCall(cmd *cli.Command) error {
	pattern := cmp.Or(cmd.Args().First(), "*")
	if cmd.Args().Len() > 1 {
		return fmt.Errorf("top takes one pattern at most, got %d; see lockline top --help", cmd.Args().Len())
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("top: not a pattern: %q", pattern)
	}
	if interval := cmd.Duration("interval"); interval < minInterval {
		return fmt.Errorf("--interval must be at least %v, not %v", minInterval, interval)
	}
	if !terminal(os.Stdin) || !terminal(cmd.Root().Writer) || os.Getenv("TERM") == "dumb" {
		return errors.New("top needs a terminal; lockline ls lists the locks once, and lockline watch NAME writes a line for each change")
	}
	return nil
}

const minInterval = 100 * time.Millisecond

func terminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// top shows the page until a key or a signal ends it.
func (o *operator) top(ctx context.Context, p *page) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	screen, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("top: this terminal cannot be used: %w", err)
	}
	if err := screen.Init(); err != nil {
		return fmt.Errorf("top: this terminal cannot be used: %w", err)
	}
	defer screen.Fini()                   // also after a panic
	screen.RegisterRuneFallback('…', ".") // where the locale has none
	return o.run(ctx, p, screen)
}

// run takes samples at intervals, one at a time, and shows what they found. The first one must succeed.
func (o *operator) run(ctx context.Context, p *page, screen tcell.Screen) error {
	samples := make(chan sample, 1) // the last one may have no receiver
	due := time.NewTimer(0)
	defer due.Stop()
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	p.resize(screen.Size())
	var rest time.Time // no sample begins before, whatever keys are pressed
	for {
		p.now = time.Now()
		paint(screen, p.render())
		select {
		case <-ctx.Done():
			return &exitError{code: exitInterrupted}
		case <-clock.C:
		case <-due.C:
			if !p.ready() {
				continue
			}
			p.asked = time.Now()
			w := p.wish()
			go func() { samples <- o.sample(ctx, w) }()
		case s := <-samples:
			p.take(s)
			if p.at.IsZero() {
				return s.err
			}
			rest = s.at.Add(min(p.interval, time.Second))
			if s.of == p.wish() {
				due.Reset(p.interval)
			} else {
				due.Reset(time.Until(rest))
			}
		case e := <-screen.EventQ():
			asked, paused := p.wish(), p.paused
			switch e := e.(type) {
			case *tcell.EventResize:
				screen.Sync() // asks the system for the size; some terminals' own reports have it the wrong way round
				p.resize(screen.Size())
			case *tcell.EventKey:
				switch p.key(keyName(e)) {
				case quit:
					return nil
				case interrupt:
					return &exitError{code: exitInterrupted}
				}
			}
			if p.wish() != asked || p.paused != paused { // what is to be shown now was perhaps not asked for
				due.Reset(time.Until(rest))
			}
		}
	}
}

var keyNames = map[tcell.Key]string{
	tcell.KeyCtrlC: "ctrl-c", tcell.KeyCtrlU: "ctrl-u", tcell.KeyEnter: "enter", tcell.KeyEscape: "esc",
	tcell.KeyUp: "up", tcell.KeyDown: "down", tcell.KeyLeft: "left", tcell.KeyRight: "right", tcell.KeyPgUp: "pgup",
	tcell.KeyPgDn: "pgdn", tcell.KeyHome: "home", tcell.KeyEnd: "end", tcell.KeyBackspace: "backspace",
}

// keyName is a key as page.key knows it; "" is none of them.
func keyName(e *tcell.EventKey) string {
	if e.Key() == tcell.KeyRune && e.Modifiers()&(tcell.ModCtrl|tcell.ModAlt|tcell.ModMeta) == 0 {
		return e.Str()
	}
	return keyNames[e.Key()]
}

var looks = map[string]tcell.Style{
	bold: tcell.StyleDefault.Bold(true), faint: tcell.StyleDefault.Dim(true), reverse: tcell.StyleDefault.Reverse(true),
	red: tcell.StyleDefault.Foreground(color.Maroon), yellow: tcell.StyleDefault.Foreground(color.Olive),
}

// paint puts lines into the cells of the screen, and sends the terminal what is new.
func paint(screen tcell.Screen, lines []line) {
	screen.Clear()
	for y, l := range lines {
		x := 0
		for _, s := range l {
			for text := s.text; text != ""; {
				rest, width := screen.Put(x, y, text, looks[s.look])
				if rest == text {
					break // it is beyond the edge
				}
				x, text = x+width, rest
			}
		}
	}
	screen.Show()
}
