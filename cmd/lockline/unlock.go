package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

const unlockDescription = `Frees the lock NAME, whichever process holds it. If there are waiters in its
queue, the first waiter gets the lock at once.

The former holder continues until its next renewal or request, at most for a third
of its lease. If the lease is fixed, or the process cannot reach Redis, the former
holder continues until the lease ends. Until then, two processes can be inside at
once: check tokens. If the holder's process is running, end that process instead.

With --token N, only the holder that inspect or ls has shown with this token loses
the lock. If another holder has the lock by now, that holder keeps it, and is shown.
A lock that a JVM holds is shown with token 0, because its token is not known. Free
such a lock without --token.

Without --token, all holders of a read-write lock or a semaphore lose it. A latch is
not a lock, and cannot be freed.

For a RedLock, only the part on this server is freed. The holder loses the RedLock
when it has lost a majority of the parts.

With --json, it writes one object. If the lock was freed, "freed" is true, and "was"
is the state of the lock before. If not, "freed" is false, and "held" has the locks
of this name that are held, or []. With exit code 125, it writes no JSON.

Exit code: 0 if the lock was freed, and 1 if it was not held, or not by the holder
with this --token. It is 125 if lockline failed: arguments, Redis, or locks of
several kinds that have this name.`

// freed is the JSON of unlock --force.
type freed struct {
	Freed bool        `json:"freed"`
	Was   *lockState  `json:"was,omitempty"` // state before the lock was freed; nil if it was not freed
	Held  []lockState `json:"held,omitzero"` // held locks of this name; nil if the lock was freed
}

func unlockCommand() *cli.Command {
	return operatorCommand(&cli.Command{
		Name: "unlock", Usage: "free a lock that another process holds", ArgsUsage: oneName,
		UsageText:   "lockline unlock --force [options] NAME",
		Description: unlockDescription,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "free the lock although a process holds it; required"},
			&cli.Int64Flag{Name: "token", DefaultText: "any",
				Usage: "take the lock only from the holder with the token `N`"},
		},
	}, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		token := cmd.Int64("token")
		switch {
		case !cmd.Bool("force"):
			return errors.New("unlock frees a lock while its holder runs; give --force to do that")
		case cmd.IsSet("token") && token <= 0:
			return fmt.Errorf("--token must be above 0, not %d; "+
				"a holder whose token is not known loses the lock without --token", token)
		}
		held, err := o.held(ctx)
		if err != nil {
			return err
		}
		hasToken := func(h holder) bool { return token == 0 || h.Token == token }
		others := func(s lockState) bool { return !slices.ContainsFunc(s.Holders, hasToken) }
		meant := slices.DeleteFunc(slices.Clone(held), others)
		switch len(meant) {
		case 0:
			return o.notFreed(ctx, held)
		case 1:
			return o.forceUnlock(ctx, meant[0], token)
		}
		return fmt.Errorf("locks of several kinds have the name %q; choose with --kind", o.name)
	})
}

// held returns the states of the locks of this name that are held. If err is nil, the result is not nil.
func (o *operator) held(ctx context.Context) ([]lockState, error) {
	states, err := o.look(ctx)
	return slices.DeleteFunc(states, func(s lockState) bool { return !s.Held }), err
}

// notFreed returns the error if nothing was freed. The error names the present holders, or says that there
// are none. With --json, notFreed also writes held, which must not be nil.
func (o *operator) notFreed(ctx context.Context, held []lockState) error {
	if o.json {
		if err := o.write(freed{Held: held}); err != nil {
			return err
		}
	}
	if len(held) == 0 {
		return &exitError{exitWrong, fmt.Errorf("lock %q (%s): not held%s", o.name, o.whereOfKind(),
			o.insteadHeld(ctx))}
	}
	var by []string
	for _, s := range held {
		for _, h := range s.Holders {
			by = append(by, fmt.Sprintf("%v holds it with token %d (%s)", h, h.Token, s.Kind))
		}
	}
	return &exitError{exitWrong, fmt.Errorf("lock %q: not freed: %s", o.name, strings.Join(by, ", "))}
}

// whereOfKind returns the result of where. If --kind has chosen a kind, the kind comes first.
func (o *operator) whereOfKind() string {
	if len(o.kinds) == 1 && !o.redisson {
		return o.kinds[0].String() + ", " + o.where()
	}
	return o.where()
}

// insteadHeld returns a hint if this name has other locks. These are held locks whose kind --kind has left
// out, and a latch that is counted down and cannot be freed. If there are none, or if a request fails, it
// returns "".
func (o *operator) insteadHeld(ctx context.Context) (text string) {
	if o.redisson {
		return ""
	}
	all := *o
	all.kinds = lockKinds
	states, _ := all.look(ctx)
	for _, s := range states {
		looked := slices.ContainsFunc(o.kinds, func(k lockKind) bool { return k.String() == s.Kind })
		switch {
		case s.counts():
			text += fmt.Sprintf("; %q is a latch (count %d), which is no lock: there is nothing to free",
				o.name, s.Count)
		case s.Held && !looked:
			text += fmt.Sprintf("; the %s lock of this name is held: --kind %[1]s", s.Kind)
		}
	}
	return text
}

// forceUnlock frees the lock. If token is not 0, it takes the lock only from the holder with this token.
func (o *operator) forceUnlock(ctx context.Context, was lockState, token int64) error {
	i := slices.IndexFunc(o.kinds, func(k lockKind) bool { return k.String() == was.Kind })
	lock := o.kinds[i].open(o.session, o.name)
	force := lock.ForceUnlock
	if token > 0 {
		force = func(ctx context.Context) (bool, error) { return lock.ForceUnlockToken(ctx, token) }
	}
	yes, err := force(ctx)
	switch {
	case err != nil:
		return err
	case !yes:
		now, err := o.held(ctx)
		if err != nil {
			return err
		}
		return o.notFreed(ctx, now)
	case o.json:
		return o.write(freed{Freed: yes, Was: &was})
	}
	for _, h := range was.Holders {
		if token == 0 || h.Token == token {
			_, err = fmt.Fprintf(o.out, "%s  %s, freed; it was held by %v with token %d\n",
				printable(o.name), was.Kind, h, h.Token)
		}
	}
	return err
}
