package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v3"
)

const inspectDescription = `Shows the holders and the waiters of the lock or semaphore NAME, in order. Nothing
is changed. If a fair lock is that of an election, its leader's value is shown. Of a
latch, the count and the parties are shown. Redis does not know which processes wait for
it. Locks of several kinds that have one name are several locks. Without --kind, all are
looked at, and what is known of each is shown (as JSON, always all).
Of a RedLock it shows the part on this one server. With --also for each of the others, it
shows on which of them the holder is, and so whether one may restart.

A lease that is renewed shows at least two thirds of its length. Less means that it is
not renewed, but for the 2 s of a lock that was just handed over.

"since" is when the session got the lock, by the server's clock; its goroutines may have
handed it on since then. How long ago that is, this machine's clock says. The token is
that time in microseconds. A free lock shows its last holder's, which is remembered
for at least 15 s. A lock that a JVM holds has token 0: it is not known.`

func inspectCommand() *cli.Command {
	return operatorCommand(&cli.Command{
		Name: "inspect", Usage: "show the holder and the waiters of a lock", ArgsUsage: oneName,
		Description: inspectDescription,
		Flags: []cli.Flag{&cli.StringSliceFlag{Name: "also",
			Usage: "`URL` of another server of a RedLock; may be given again"}},
	}, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		if cmd.IsSet("also") {
			return o.inspectServers(ctx, cmd)
		}
		states, err := o.look(ctx)
		if err != nil {
			return err
		}
		if o.json {
			return o.write(states)
		}
		forgotten := func(s lockState) bool { return s.gone() && s.Token == 0 }
		known := slices.DeleteFunc(slices.Clone(states), forgotten)
		if len(known) == 0 {
			fmt.Fprintf(o.out, "%s  free (%s)\n", printable(o.name), o.where())
		}
		for _, s := range known {
			s.print(o.out)
		}
		return nil
	})
}

func (s lockState) print(out io.Writer) {
	fmt.Fprintf(out, "%s  %s, %s\n", printable(s.Name), s.Kind, s.status())
	if s.Held {
		fmt.Fprintf(out, "  count    %s\n", s.count())
	}
	for _, h := range s.Holders {
		if h.Party != "" {
			fmt.Fprintf(out, "  party    %v, lease %s\n", h, short(h.RemainingMS))
			continue
		}
		fmt.Fprintf(out, "  holder   %v, owner %s\n", h, printable(h.Owner))
		fmt.Fprintf(out, "           since %s, lease %s, token %d\n", h.text(), short(h.RemainingMS), h.Token)
		if h.PID != 0 {
			fmt.Fprintf(out, "           with %v\n", h.speaks)
		}
	}
	if s.Value != nil {
		fmt.Fprintf(out, "  value    %s\n", s.said())
	}
	if !s.Held && s.Token > 0 {
		fmt.Fprintf(out, "  token    %d\n", s.Token)
	}
	for i, w := range s.Queue {
		fmt.Fprintf(out, "  waiter %-3d %v, for %s, owner %s%s\n", i+1, w, short(w.AgeMS), printable(w.Owner),
			w.differs())
	}
}
