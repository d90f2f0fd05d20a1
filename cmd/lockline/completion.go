package main

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// These scripts replace the scripts of the cli package, which split words at colons, although many names and
// all URLs contain colons. The package's script for bash also evaluates the incomplete line.
var (
	//go:embed completion.bash
	bashCompletion string
	//go:embed completion.fish
	fishCompletion string
)

func setUpCompletion(c *cli.Command) {
	c.Hidden = false
	c.Before = func(ctx context.Context, cmd *cli.Command) (context.Context, error) {
		known := func(shell *cli.Command) bool { return shell.Name == cmd.Args().First() }
		if name := cmd.Args().First(); name != "" && !slices.ContainsFunc(c.Commands, known) {
			return ctx, misused(cmd, "there is no completion for %q", name)
		}
		return ctx, nil
	}
	for _, shell := range c.Commands {
		script := map[string]string{"bash": bashCompletion, "fish": fishCompletion}[shell.Name]
		if script != "" {
			shell.Action = func(_ context.Context, cmd *cli.Command) error {
				_, err := fmt.Fprint(cmd.Root().Writer, script)
				return err
			}
		}
	}
}

// completionTime is the longest time for which a shell waits for names.
const completionTime = time.Second

// completeName offers flags. If the command takes the name of a lock, it also offers the names of locks that
// are held or waited for. It leaves out names that cannot be written in a line.
func completeName(ctx context.Context, cmd *cli.Command) {
	if args := cmd.Args().Slice(); len(args) > 0 {
		afterName := cmd.StopOnNthArg != nil && !strings.HasPrefix(args[0], "-") // no flags after NAME
		if strings.HasPrefix(args[len(args)-1], "-") && !afterName {
			cli.DefaultCompleteWithFlags(ctx, cmd)
		}
		return
	}
	for _, f := range cmd.Flags {
		_ = f.PostParse() // reads the environment, which the cli package does not do before completions
	}
	// go-redis does not watch the context while it waits for a reply.
	defer time.AfterFunc(completionTime, func() { os.Exit(exitOK) }).Stop()
	rdb, err := targetOf(cmd).open(ctx)
	if err != nil {
		return
	}
	defer rdb.Close()
	o := &operator{rdb: rdb, prefix: cmd.String("prefix"), redisson: cmd.Bool("redisson"), pattern: "*"}
	locks, _, err := o.scan(ctx)
	if err != nil {
		return
	}
	names := map[string]bool{}
	for l := range locks {
		names[l.name] = printable(l.name) == l.name && !strings.Contains(l.name, `\`)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			_, _ = fmt.Fprintln(cmd.Root().Writer, strings.ReplaceAll(name, ":", `\:`))
		}
	}
}
