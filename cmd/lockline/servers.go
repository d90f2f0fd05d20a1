package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/rlock"
)

// inspectServers shows on which servers of a RedLock its holder is.
func (o *operator) inspectServers(ctx context.Context, cmd *cli.Command) error {
	var all []lockState
	votes, most := map[string]int{}, 0
	t := targetOf(cmd)
	for _, url := range append([]string{t.URL}, cmd.StringSlice("also")...) {
		t.URL = url
		s, err := o.partAt(ctx, t)
		if err != nil {
			return err
		}
		all = append(all, s)
		if s.Held {
			votes[s.Holder.Session]++
			most = max(most, votes[s.Holder.Session])
		}
	}
	if o.json {
		return o.write(all)
	}
	fmt.Fprintf(o.out, "%s  %s\n", printable(o.name), rlock.KindRedLock)
	for _, s := range all {
		fmt.Fprintf(o.out, "  %-24s %s\n", s.Server, cmp.Or(s.Error, s.heldBy(), "free"))
	}
	switch n := len(all); {
	case most == n:
		fmt.Fprintf(o.out, "held on all %d servers: one of them may restart\n", n)
	case most > n/2:
		fmt.Fprintf(o.out, "held on %d of %d servers: restart none that has the holder\n", most, n)
	default:
		fmt.Fprintf(o.out, "no majority: the same holder is on %d of %d servers at most\n", most, n)
	}
	return nil
}

// partAt is what one server has of a RedLock, or that it cannot be reached.
func (o *operator) partAt(ctx context.Context, t target) (lockState, error) {
	at := &operator{prefix: o.prefix}
	s := newState(o.name, rlock.KindRedLock.String())
	err := at.open(ctx, t)
	if err == nil {
		defer at.close()
		s, err = openRedLock(at.session, o.name).state(ctx)
	}
	if down, ok := errors.AsType[*unreachable](err); ok {
		s.Error, err = say(down), nil
	}
	s.Server = t.host()
	return s, err
}
