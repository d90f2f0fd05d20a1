package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/rlock"
)

// operator is what the commands for operators share.
type operator struct {
	rdb      redis.UniversalClient
	session  *rlock.Session
	down     *unreachable // doctor: why there is neither
	prefix   string
	redisson bool
	json     bool
	kinds    []lockKind // to look at
	name     string     // of the lock, where the command takes one
	out      io.Writer
}

const kindUsage = "reentrant, fair, redlock, rwlock, semaphore or latch (default: whichever there is)"

// operatorCommand completes a command with the flags that all of them have, and
// connects it. Where named is set it takes one NAME.
func operatorCommand(c *cli.Command, named bool, run func(context.Context, *operator, *cli.Command) error) *cli.Command {
	c.HideHelpCommand = true // "help" is a lock's name like any other
	c.OnUsageError = usageError
	c.Flags = slices.Concat(redisFlags(), []cli.Flag{
		prefixFlag(),
		&cli.BoolFlag{Name: "redisson", Usage: "the locks are shared with Redisson; there is no prefix then"},
	}, c.Flags)
	if c.Name != "top" { // which writes for people alone
		c.Flags = append(c.Flags, &cli.BoolFlag{Name: "json", Usage: "write JSON"})
	}
	if named {
		c.Flags = append(c.Flags, &cli.StringFlag{Name: "kind", Usage: kindUsage})
	}
	if named || c.Name == "ls" || c.Name == "top" {
		c.ShellComplete = completeName
	}
	c.Action = func(ctx context.Context, cmd *cli.Command) error {
		o := &operator{prefix: cmd.String("prefix"), redisson: cmd.Bool("redisson"), json: cmd.Bool("json"),
			kinds: lockKinds, out: cmd.Root().Writer}
		if o.redisson {
			o.kinds = redissonKinds
		}
		if every := cmd.Duration("interval"); every <= 0 && cmd.IsSet("interval") {
			return fmt.Errorf("--interval must be positive, not %v", every)
		}
		if named {
			if err := o.choose(cmd); err != nil {
				return err
			}
		}
		err := o.open(ctx, targetOf(cmd))
		switch down, ok := errors.AsType[*unreachable](err); {
		case ok && (c.Name == "doctor" || cmd.IsSet("also")): // what it is to find, or one server of several
			o.down = down
		case err != nil:
			return err
		default:
			defer o.close()
		}
		return run(ctx, o, cmd)
	}
	return c
}

// choose reads NAME and --kind.
func (o *operator) choose(cmd *cli.Command) error {
	if cmd.Args().Len() != 1 {
		return fmt.Errorf("%s takes the name of one lock, got %d; see %s --help", cmd.Name, cmd.Args().Len(), cmd.FullName())
	}
	o.name = cmd.Args().First()
	if wanted := cmd.String("kind"); wanted != "" {
		other := func(k lockKind) bool { return wanted != k.String() && wanted != string(k.Kind) }
		if o.kinds = slices.DeleteFunc(slices.Clone(o.kinds), other); len(o.kinds) == 0 {
			return fmt.Errorf("there is no kind %q of lock here; see %s --help", wanted, cmd.FullName())
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
	options = append(options, rlock.WithPrefix(o.prefix), rlock.WithLabel("lockline"),
		rlock.WithLogger(slog.New(slog.DiscardHandler))) // what matters is said here
	return rlock.NewSession(o.rdb, options...)
}

func (o *operator) close() {
	closeSession(o.session)
	_ = o.rdb.Close()
}

// look asks for the lock NAME of each kind.
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

// where says which locks it looks at: with another prefix than the programs' there are none.
func (o *operator) where() string {
	if o.redisson {
		return "shared with Redisson"
	}
	return "prefix " + printable(o.prefix)
}
