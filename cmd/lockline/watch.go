package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

const watchDescription = `Reads the lock NAME again and again, and writes a line whenever its holder, its
hold count or its queue has changed, until ctrl-C. It also ends when nobody reads
its lines any more (exit code 141). For a latch, it follows the count and the
parties, and for an election also the leader's value. Changes between two looks are
not seen. While Redis does not answer, it says so and continues. With --json, each
line is a JSON object.

If a session has waited for the lock for longer than a second, it also checks, at
most every 5 s, whether sessions seem to wait for each other. If they do, a line
says "suspected circle". That may be a deadlock or not, see lockline ls --help.`

func watchCommand() *cli.Command {
	return operatorCommand(&cli.Command{
		Name: "watch", Usage: "follow the holder and the waiters of a lock", ArgsUsage: oneName,
		Description: watchDescription,
		Flags: []cli.Flag{&cli.DurationFlag{Name: "interval", Value: 250 * time.Millisecond,
			Usage: "time between two looks"}},
	}, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		ctx, stop := untilSignal(ctx)
		defer stop()
		return o.watch(ctx, cmd.Duration("interval"), func(err error) { complain(cmd.Root().ErrWriter, err) })
	})
}

// A sight is one line of watch --json.
type sight struct {
	At time.Time `json:"at"`
	lockState
	Circle waitingCircle `json:"circle,omitempty"` // sessions that seem to wait for each other
}

func (o *operator) watch(ctx context.Context, interval time.Duration, trouble func(error)) error {
	ticks := time.Tick(interval)
	last := map[string]string{} // last line and its circle, by kind
	failing := false
	search := newCircleSearch(o)
	for first := true; ; first = false {
		wasSilent := func() bool { return false }
		if !failing {
			wasSilent = o.announceSilence(silence, trouble)
		}
		states, err := o.look(ctx)
		again := wasSilent() || failing
		switch {
		case ctx.Err() != nil:
			return &exitError{code: exitInterrupted}
		case readerGone(o.out):
			return &exitError{code: exitUnread}
		case err != nil && first:
			return err
		case err != nil && !failing:
			trouble(err)
		case err == nil:
			if again {
				trouble(fmt.Errorf("at %s, Redis answers again", o.at.place()))
			}
			if err := search.look(ctx, states); err != nil {
				trouble(fmt.Errorf("circles of waiting sessions are not looked for: %w", err))
			}
			for _, s := range states {
				circle := search.of(s)
				line := s.line()
				if key := line + circle.key(); key != last[s.Kind] {
					last[s.Kind] = key
					if err := o.show(s, line, circle); err != nil {
						return err
					}
				}
			}
		}
		failing = err != nil
		select {
		case <-ticks:
		case <-ctx.Done():
			return &exitError{code: exitInterrupted}
		}
	}
}

func (o *operator) show(s lockState, line string, circle waitingCircle) error {
	now := time.Now()
	if !o.json {
		_, err := fmt.Fprintf(o.out, "%s  %s%s\n", now.Format("15:04:05.000"), line, circle.mark())
		return err
	}
	return json.NewEncoder(o.out).Encode(sight{now, s, circle})
}

// announceSilence reports that Redis does not answer, when the time `after` has passed. The function stop
// prevents the report. If the report was already made, stop returns true.
func (o *operator) announceSilence(after time.Duration, report func(error)) (stop func() bool) {
	said := make(chan struct{})
	timer := time.AfterFunc(after, func() {
		defer close(said)
		report(fmt.Errorf("no answer from Redis at %s for %v", o.at.place(), after))
	})
	return func() bool {
		if timer.Stop() {
			return false
		}
		<-said
		return true
	}
}

// line returns the state of a lock as text. The text has no times, because times change with each look.
func (s lockState) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-9s  %s", s.Kind, s.status())
	for i, h := range s.Holders {
		switch {
		case i > 0:
			b.WriteString("; ")
		case s.Held:
			b.WriteString(" by ")
		default:
			b.WriteString("; parties: ")
		}
		b.WriteString(h.String())
		if s.Held {
			fmt.Fprintf(&b, ", count %s, token %d", s.count(), h.Token)
		}
	}
	if s.Value != nil {
		b.WriteString(", value " + s.said())
	}
	for i, w := range s.Queue {
		b.WriteString(map[bool]string{true: "; waiting: ", false: ", "}[i == 0])
		b.WriteString(w.String())
		if w.PID == 0 {
			continue
		}
		_, attempt, _ := strings.Cut(w.Owner, ":") // a session can have several waiters
		b.WriteString(" #" + printable(attempt))
	}
	return b.String()
}
