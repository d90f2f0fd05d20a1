package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v3"
)

const inspectDescription = `Shows the holders and the waiters of the lock or semaphore NAME, in order. Nothing is
changed. Locks of several kinds that have one name are several locks. Without
--kind, all are looked at, and what is known of each is shown (as JSON, always all).
Of a RedLock it is what this one server knows: the holder has a majority of them.

The token of a free lock is that of its last holder; it is remembered for at least 15 s.
A lock that a JVM holds has token 0: it is not known.`

func inspectCommand() *cli.Command {
	return operatorCommand(&cli.Command{
		Name: "inspect", Usage: "show the holder and the waiters of a lock", UsageText: "lockline inspect [options] NAME",
		Description: inspectDescription,
	}, true, func(ctx context.Context, o *operator, _ *cli.Command) error {
		states, err := o.look(ctx)
		if err != nil {
			return err
		}
		if o.json {
			return o.write(states)
		}
		known := slices.DeleteFunc(slices.Clone(states), func(s lockState) bool { return !s.Held && len(s.Queue) == 0 && s.Token == 0 })
		if len(known) == 0 {
			fmt.Fprintf(o.out, "%s  free\n", printable(o.name))
		}
		for _, s := range known {
			s.print(o.out)
		}
		return nil
	})
}

func (s lockState) print(out io.Writer) {
	fmt.Fprintf(out, "%s  %s, %s\n", printable(s.Name), s.Kind, map[bool]string{true: "held", false: "free"}[s.Held])
	if s.Held {
		if len(s.Holders) == 0 {
			fmt.Fprintf(out, "  holder   %v\n", s.Holder)
			fmt.Fprintf(out, "  owner    %s\n", printable(s.Holder.Owner))
		}
		fmt.Fprintf(out, "  count    %s\n", s.count())
		for _, h := range s.Holders {
			fmt.Fprintf(out, "  holder   %v, lease %s, token %d, owner %s\n", h, short(h.RemainingMS), h.Token, printable(h.Owner))
		}
	}
	if s.Held && len(s.Holders) == 0 {
		fmt.Fprintf(out, "  lease    %s, unless it is renewed\n", s.remaining())
	}
	if len(s.Holders) == 0 {
		fmt.Fprintf(out, "  token    %d\n", s.Token)
	}
	for i, w := range s.Queue {
		fmt.Fprintf(out, "  waiter %-3d %v, for %s, owner %s\n", i+1, w, short(w.AgeMS), printable(w.Owner))
	}
}
