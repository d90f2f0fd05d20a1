package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v3"
)

const inspectDescription = `Shows the holder of the lock NAME, and of a fair lock the queue, in order. Nothing is
changed. A reentrant lock, a fair lock and a RedLock of one name are three locks. Without
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
		fmt.Fprintf(out, "  holder   %v\n", s.Holder)
		fmt.Fprintf(out, "  owner    %s\n", printable(s.Holder.Owner))
		fmt.Fprintf(out, "  count    %d\n", s.Count)
		fmt.Fprintf(out, "  lease    %s, unless it is renewed\n", s.remaining())
	}
	fmt.Fprintf(out, "  token    %d\n", s.Token)
	for i, w := range s.Queue {
		fmt.Fprintf(out, "  waiter %-3d %v, for %s, owner %s\n", i+1, w.party, short(w.AgeMS), printable(w.Owner))
	}
}
