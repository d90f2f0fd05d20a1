package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
	"golang.org/x/term"
)

const topDescription = `Shows what lockline ls PATTERN lists, on a page that is refreshed. It needs a terminal:
in a pipe, use lockline ls or lockline watch.

Each look at Redis is that of ls, and the next one begins --interval after it has ended.
If a look takes longer than that, as of very many locks, the next one begins as long after
it as it took.

Keys:

      s, left, right  sort by waiting, first, held for, lease or name
      up, down        select a lock
      Enter, i        show it as lockline inspect does, until Esc

      p               pause, and go on
      q               quit, with exit code 0 (ctrl-C: 130)`

func topCommand() *cli.Command {
	c := operatorCommand(&cli.Command{
		Name: "top", Usage: "watch all locks on a page that is refreshed", UsageText: "lockline top [options] [PATTERN]",
		Description: topDescription,
		Flags: []cli.Flag{&cli.DurationFlag{Name: "interval", Value: time.Second,
			Usage: "between two looks"}},
	}, false, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		pattern, err := patternOf(cmd)
		if err != nil {
			return err
		}
		server := targetOf(cmd).host()
		if _, ok := o.rdb.(*redis.ClusterClient); ok {
			server = "Cluster of " + server
		}
		return o.top(ctx, &page{server: server, pattern: pattern, interval: cmd.Duration("interval")})
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
	if _, err := patternOf(cmd); err != nil {
		return err
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
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fmt.Errorf("top: this terminal cannot be used: %w", err)
	}
	defer screen.Fini()                   // also after a panic
	screen.RegisterRuneFallback('…', ".") // where the locale has none
	return o.run(ctx, p, screen)
}

// run looks at intervals, and shows what it found. The first look must succeed.
func (o *operator) run(ctx context.Context, p *page, screen tcell.Screen) error {
	looks := make(chan look, 1) // the last one may have no receiver
	due := time.NewTimer(0)
	defer due.Stop()
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	p.resize(screen.Size())
	for {
		p.now = time.Now()
		paint(screen, p.render())
		select {
		case <-ctx.Done():
			return &exitError{code: exitInterrupted}
		case <-clock.C:
		case <-due.C:
			if p.paused || !p.asked.IsZero() {
				continue
			}
			p.asked = time.Now()
			go func() {
				l := look{begun: time.Now()}
				l.states, l.err = o.list(ctx, p.pattern)
				l.at = time.Now()
				looks <- l
			}()
		case l := <-looks:
			p.take(l)
			if p.at.IsZero() {
				return l.err
			}
			due.Reset(max(p.interval, l.at.Sub(l.begun)))
		case e := <-screen.EventQ():
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
				case lookNow:
					due.Reset(0)
				}
			}
		}
	}
}

var keyNames = map[tcell.Key]string{
	tcell.KeyCtrlC: "ctrl-c", tcell.KeyEnter: "enter", tcell.KeyEscape: "esc",
	tcell.KeyUp: "up", tcell.KeyDown: "down", tcell.KeyLeft: "left", tcell.KeyRight: "right", tcell.KeyPgUp: "pgup",
	tcell.KeyPgDn: "pgdn", tcell.KeyHome: "home", tcell.KeyEnd: "end",
}

// keyName is a key as page.key knows it; "" is none of them.
func keyName(e *tcell.EventKey) string {
	if e.Key() == tcell.KeyRune && e.Modifiers()&(tcell.ModCtrl|tcell.ModAlt|tcell.ModMeta) == 0 {
		return e.Str()
	}
	return keyNames[e.Key()]
}

var styles = map[string]tcell.Style{
	bold: tcell.StyleDefault.Bold(true), faint: tcell.StyleDefault.Dim(true), reverse: tcell.StyleDefault.Reverse(true),
	red: tcell.StyleDefault.Foreground(color.Maroon), yellow: tcell.StyleDefault.Foreground(color.Olive),
}

// paint puts lines into the cells of the screen, and sends the terminal what is new.
func paint(screen tcell.Screen, lines []line) {
	screen.Clear()
	for y, l := range lines {
		for x, text := 0, l.text; text != ""; {
			rest, width := screen.Put(x, y, text, styles[l.style])
			if rest == text {
				break // it is beyond the edge
			}
			x, text = x+width, rest
		}
	}
	screen.Show()
}
