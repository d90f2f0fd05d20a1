package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v3"
)

const inspectDescription = `Shows the holders and the waiters of the lock or semaphore NAME, in order. It
changes nothing. For the fair lock of an election, it also shows the leader's
value. For a latch, it shows the count and the parties. Redis does not know which
processes wait for a latch. Locks of different kinds with one name are different
locks. Without --kind, it looks at all kinds, and shows the locks that Redis
knows (with --json, always all kinds). For a RedLock, it shows the part on this
one server. With --also for each of the other servers, it shows which of them
have the holder, and so whether one server may restart.

If a lease is renewed, at least two thirds of it are left. If less is left, the
lease is not renewed, or the lock was just handed over, with a first lease of 2 s.

"since" is the time at which the session got the lock, by the server's clock. The
session's goroutines may have passed the lock on to each other since then. The
duration is measured with this machine's clock. The token is the time of "since" in
microseconds. For a free lock, the token of its last holder is shown, which Redis
remembers for at least 15 s. If a JVM holds the lock, the token is 0, because it is
not known.`

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
