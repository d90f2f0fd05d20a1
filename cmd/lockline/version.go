package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v3"
)

// version is the version of a release, which is built with -ldflags "-X main.version=1.2.3". If version is
// "", showVersion shows the version of the module, which contains the commit.
var version string

func showVersion(cmd *cli.Command) error {
	built := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		built = info.Main.Version
	}
	number := strings.TrimPrefix(cmp.Or(version, built), "v")
	_, err := fmt.Fprintf(cmd.Root().Writer, "lockline %s (%s, %s/%s)\n",
		number, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
