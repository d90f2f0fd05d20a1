package main

import (
	"context"
	"crypto/sha1"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/script"
)

const scriptDescription = `Lists the Lua scripts that locks run in Redis, each with the SHA-1 digest by which
SLOWLOG and MONITOR name it. With a name or a digest, prints that script.

The scripts are those of this version of lockline. The command needs no Redis.`

func scriptCommand() *cli.Command {
	return &cli.Command{
		Name: "script", Usage: "list the scripts that run in Redis, or print one",
		UsageText:   "lockline script [NAME | DIGEST]",
		Description: scriptDescription,
		ShellComplete: func(_ context.Context, cmd *cli.Command) {
			for _, name := range script.Names() {
				_, _ = fmt.Fprintln(cmd.Root().Writer, name)
			}
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() > 1 {
				return misused(cmd, "script takes one argument, got %q, too", cmd.Args().Get(1))
			}
			which, out := cmd.Args().First(), cmd.Root().Writer
			for _, name := range script.Names() {
				text := script.Text(name)
				switch digest := fmt.Sprintf("%x", sha1.Sum([]byte(text))); which {
				case "":
					_, _ = fmt.Fprintf(out, "%s  %s\n", digest, name)
				case name, digest:
					_, err := fmt.Fprint(out, text)
					return err
				}
			}
			if which != "" {
				return fmt.Errorf("this version has no script %q; see lockline script", which)
			}
			return nil
		},
	}
}
