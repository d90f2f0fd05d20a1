package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"
)

const unlockDescription = `Frees the lock NAME whoever holds it. A fair lock goes to the first waiter at once.

The holder does not notice in that instant: it goes on until its next renewal or
request, at most a third of its lease. So two can be inside for that long; what must
not be done twice needs the fencing token. Where the holder's process still runs, end
that instead. A RedLock is freed on this one server: repeat it on a majority of them.

A RedLock is freed on this server alone: its holder loses it once a majority of its servers
has been told.

Exit code: 0 if the lock was freed, 1 if nobody held it.`

// freed is the outcome of unlock --force, and its JSON.
type freed struct {
	Freed bool      `json:"freed"`
	Was   lockState `json:"was"` // just before
}

func unlockCommand() *cli.Command {
	return operatorCommand(&cli.Command{
		Name: "unlock", Usage: "free a lock that somebody else holds", UsageText: "lockline unlock --force [options] NAME",
		Description: unlockDescription,
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "yes, whoever holds it"}},
	}, true, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		if !cmd.Bool("force") {
			return errors.New("unlock frees a lock under its holder; say --force if you mean it")
		}
		states, err := o.look(ctx)
		if err != nil {
			return err
		}
		held := slices.DeleteFunc(states, func(s lockState) bool { return !s.Held })
		switch len(held) {
		case 0:
			return errNothing
		case 1:
			return o.forceUnlock(ctx, held[0])
		}
		return fmt.Errorf("locks of several kinds have the name %q; choose with --kind", o.name)
	})
}

func (o *operator) forceUnlock(ctx context.Context, was lockState) error {
	i := slices.IndexFunc(o.kinds, func(k lockKind) bool { return k.name == was.Kind })
	yes, err := o.kinds[i].mutex(o.session, o.name).ForceUnlock(ctx)
	switch {
	case err != nil:
		return err
	case !yes:
		return errNothing // it was freed in that instant
	case o.json:
		return o.write(freed{yes, was})
	}
	_, err = fmt.Fprintf(o.out, "%s  %s, freed; it was held by %v with token %d\n", printable(o.name), was.Kind, was.Holder, was.Token)
	return err
}
