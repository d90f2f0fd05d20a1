package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/rlock"
)

// inspectServers shows which servers of a RedLock have its holder.
func (o *operator) inspectServers(ctx context.Context, cmd *cli.Command) error {
	if len(o.kinds) == 1 && o.kinds[0].Kind != rlock.KindRedLock {
		return errors.New("--also is for a RedLock: other locks are on one server")
	}
	var all []lockState
	votes, most := map[string]int{}, 0
	t := targetOf(cmd)
	t.noReplica = true
	for i, url := range append([]string{t.URL}, cmd.StringSlice("also")...) {
		if t.URL = url; i > 0 {
			t.from, t.file = "--also", ""
		}
		if slices.ContainsFunc(all, func(s lockState) bool { return s.Server == t.host() }) {
			return fmt.Errorf("--also: %s is named twice: each server has one vote", t.host())
		}
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
	case n < 3:
		fmt.Fprintf(o.out, "held on %d of 2: name all servers to see whether one may restart\n", most)
	case most == n:
		fmt.Fprintf(o.out, "held on all %d servers named: one of them may restart, if these are all\n", n)
	case most > n/2:
		fmt.Fprintf(o.out, "held on %d of %d servers: restart none that has the holder\n", most, n)
	default:
		fmt.Fprintf(o.out, "no majority: the same holder is on %d of %d servers at most\n", most, n)
	}
	return nil
}

// partAt returns the state of a RedLock on one server. If the state cannot be read, the returned state has
// the error.
func (o *operator) partAt(ctx context.Context, t target) (s lockState, err error) {
	at := &operator{prefix: o.prefix}
	unknown := at.open(ctx, t)
	if unknown == nil {
		defer at.close()
		s, unknown = openRedLock(at.session, o.name).state(ctx)
	} else if !errors.As(unknown, new(*unreachable)) {
		return s, unknown // a mistake in the command line
	}
	if unknown != nil {
		s = notKnown(o.name, rlock.KindRedLock, say(unknown))
	}
	s.Server = t.host()
	return s, nil
}
