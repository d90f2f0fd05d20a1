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

// These scripts replace the scripts of the cli package. The package's scripts split words at colons, although
// many names and all URLs contain colons. The package's script for bash also executes the incomplete
// command line.
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

// completeName offers flags if the incomplete word begins with a dash. Otherwise, if the command has no
// argument yet, completeName offers the names of locks that scan finds. It leaves out names with a backslash
// or with a character that cannot be printed.
func completeName(ctx context.Context, cmd *cli.Command) {
	if args := cmd.Args().Slice(); len(args) > 0 {
		// exec takes no flags after NAME.
		afterName := cmd.StopOnNthArg != nil && !strings.HasPrefix(args[0], "-")
		if strings.HasPrefix(args[len(args)-1], "-") && !afterName {
			cli.DefaultCompleteWithFlags(ctx, cmd)
		}
		return
	}
	for _, f := range cmd.Flags {
		_ = f.PostParse() // reads the environment; the cli package does not call PostParse before completions
	}
	// The timer ends the process, because go-redis does not watch the context while it waits for a reply.
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
