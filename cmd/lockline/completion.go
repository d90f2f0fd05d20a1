package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// The scripts of the cli package cut at colons, which many names and all URLs have, and its one for bash evaluates the
// half-written line.
var (
	//go:embed completion.bash
	bashCompletion string
	//go:embed completion.fish
	fishCompletion string
)

func setUpCompletion(c *cli.Command) {
	c.Hidden = false
	for _, shell := range c.Commands {
		if script := map[string]string{"bash": bashCompletion, "fish": fishCompletion}[shell.Name]; script != "" {
			shell.Action = func(_ context.Context, cmd *cli.Command) error {
				_, err := fmt.Fprint(cmd.Root().Writer, script)
				return err
			}
		}
	}
}

// completionTime is how long a shell waits for names.
const completionTime = time.Second

// completeName offers flags, and the names of locks where the command takes one. If Redis does not tell them in time there are none.
func completeName(ctx context.Context, cmd *cli.Command) {
	if args := cmd.Args().Slice(); len(args) > 0 {
		behind := cmd.StopOnNthArg != nil && !strings.HasPrefix(args[0], "-") // NAME there are no flags
		if strings.HasPrefix(args[len(args)-1], "-") && !behind {
			cli.DefaultCompleteWithFlags(ctx, cmd)
		}
		return
	}
	for _, f := range cmd.Flags {
		_ = f.PostParse() // reads the environment; before a completion nothing else does
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	names := make(chan []string, 1)
	go func() { // go-redis does not look at ctx while it waits for an answer
		names <- namesIn(ctx, targetOf(cmd), &operator{prefix: cmd.String("prefix"), redisson: cmd.Bool("redisson")})
	}()
	select {
	case all := <-names:
		for _, name := range all {
			_, _ = fmt.Fprintln(cmd.Root().Writer, strings.ReplaceAll(name, ":", `\:`))
		}
	case <-ctx.Done():
	}
}

// namesIn is the names of the locks that are held or waited for, but for those that no line can have.
func namesIn(ctx context.Context, t target, o *operator) (names []string) {
	rdb, err := t.open(ctx)
	if err != nil {
		return nil
	}
	defer rdb.Close()
	o.rdb = rdb
	locks, err := o.scan(ctx, "*")
	if err != nil {
		return nil
	}
	for l := range locks {
		if printable(l.name) == l.name && !strings.Contains(l.name, `\`) {
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
