package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

// An operator has the data that the commands for operators share.
type operator struct {
	rdb      redis.UniversalClient
	session  *rlock.Session
	at       target
	down     *unreachable  // set if Redis could not be reached; then rdb and session are nil
	lease    time.Duration // lease of the programs, for the doctor
	seen     []facts       // facts of all masters that the doctor has examined
	prefix   string
	redisson bool
	json     bool
	kinds    []lockKind // kinds of locks that the command looks at
	name     string     // name of the lock, if the command takes one
	pattern  string     // pattern of names, if the command takes one
	out      io.Writer
}

const kindUsage = "reentrant, fair, redlock, rwlock, semaphore or latch (default: whichever there is)"

// Arguments of the commands for operators, as their help shows them.
const (
	oneName    = "NAME"
	onePattern = "[PATTERN]"
)

// operatorCommand adds the flags that all commands for operators have. The action of the command connects to
// Redis, and then calls run.
func operatorCommand(c *cli.Command, run func(context.Context, *operator, *cli.Command) error) *cli.Command {
	c.Flags = slices.Concat(redisFlags(), []cli.Flag{&cli.BoolFlag{Name: "redisson",
		Usage: "look at locks that are shared with Redisson; they have no prefix"}}, c.Flags)
	if c.Name != "top" { // top has no JSON
		c.Flags = append(c.Flags, &cli.BoolFlag{Name: "json", Usage: "write JSON"})
	}
	if c.ArgsUsage == oneName {
		c.Flags = append(c.Flags, &cli.StringFlag{Name: "kind", Usage: kindUsage})
	}
	if c.ArgsUsage != "" {
		c.ShellComplete = completeName
	}
	c.Action = func(ctx context.Context, cmd *cli.Command) error {
		o := &operator{prefix: cmd.String("prefix"), redisson: cmd.Bool("redisson"), json: cmd.Bool("json"),
			kinds: lockKinds, out: cmd.Root().Writer}
		if o.redisson {
			o.kinds = redissonKinds
		}
		if cmd.IsSet("interval") {
			if err := checkTime(cmd, "interval", protocol.MinTime); err != nil {
				return err
			}
		}
		if err := o.arguments(cmd); err != nil {
			return err
		}
		at := targetOf(cmd)
		o.at = at
		at.noReplica = c.Name != "doctor" // doctor has a finding about replicas
		stop := o.announceSilence(openingSilence, func(err error) { complain(cmd.Root().ErrWriter, err) })
		err := o.open(ctx, at)
		stop()
		switch down, ok := errors.AsType[*unreachable](err); {
		// The doctor and commands with --also report this error later.
		case ok && (c.Name == "doctor" || cmd.IsSet("also")):
			o.down = down
		case err != nil:
			return err
		default:
			defer o.close()
		}
		return at.located(run(ctx, o, cmd))
	}
	return c
}

// openingSilence is the time after which a command reports that Redis does not answer. It may take 20 s until
// the command fails.
const openingSilence = 3 * time.Second

// arguments reads NAME and --kind, or PATTERN.
func (o *operator) arguments(cmd *cli.Command) error {
	n, first := cmd.Args().Len(), cmd.Args().First()
	o.name, o.pattern = first, cmp.Or(first, "*")
	switch _, err := path.Match(o.pattern, ""); {
	case cmd.ArgsUsage == "" && n > 0:
		return misused(cmd, "%s takes no arguments, got %q", cmd.Name, first)
	case cmd.ArgsUsage == oneName && n != 1:
		return misused(cmd, "%s takes the name of one lock, got %d", cmd.Name, n)
	case cmd.ArgsUsage == onePattern && n > 1:
		return misused(cmd, "%s takes one pattern at most, got %d", cmd.Name, n)
	case cmd.ArgsUsage == onePattern && err != nil:
		return fmt.Errorf("%s: not a pattern: %q", cmd.Name, first)
	}
	if wanted := cmd.String("kind"); wanted != "" {
		other := func(k lockKind) bool { return wanted != k.String() && wanted != string(k.Kind) }
		if o.kinds = slices.DeleteFunc(slices.Clone(o.kinds), other); len(o.kinds) == 0 {
			return misused(cmd, "there is no kind %q of lock here", wanted)
		}
	}
	return nil
}

func (o *operator) open(ctx context.Context, t target) (err error) {
	if o.rdb, err = t.open(ctx); err != nil {
		return err
	}
	if o.session, err = o.newSession(); err != nil {
		_ = o.rdb.Close()
	}
	return err
}

func (o *operator) newSession(options ...rlock.SessionOption) (*rlock.Session, error) {
	return newSession(o.rdb, o.prefix, "lockline", options...)
}

// newSession makes a session that logs nothing, because the command itself reports all errors.
func newSession(
	rdb redis.UniversalClient, prefix, label string, options ...rlock.SessionOption,
) (*rlock.Session, error) {
	return rlock.NewSession(rdb, append(options, rlock.WithPrefix(prefix), rlock.WithLabel(label),
		rlock.WithLogger(slog.New(slog.DiscardHandler)))...)
}

func (o *operator) close() {
	closeSession(o.session)
	_ = o.rdb.Close()
}

// look returns the state of the lock NAME for each kind.
func (o *operator) look(ctx context.Context) ([]lockState, error) {
	var states []lockState
	for _, k := range o.kinds {
		st, err := k.at(o.session, o.name).state(ctx)
		if err == nil {
			err = o.addValue(ctx, &st)
		}
		if err != nil {
			return nil, err
		}
		states = append(states, st.aged(time.Now()))
	}
	return states, nil
}

// write writes v as JSON.
func (o *operator) write(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.out, "%s\n", b)
	return err
}

// where returns a text with the prefix, because a wrong prefix is a likely reason if no locks are found.
func (o *operator) where() string {
	if o.redisson {
		return "shared with Redisson"
	}
	return "prefix " + printable(o.prefix)
}
