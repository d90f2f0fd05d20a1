package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v3"
)

// version is set for a release: go build -ldflags "-X main.version=1.2.3".
var version string

func showVersion(cmd *cli.Command) error {
	info, _ := debug.ReadBuildInfo() // nil if there is none
	_, err := fmt.Fprintln(cmd.Root().Writer, versionLine(version, info))
	return err
}

// versionLine is the version of the release, or else of the module, and what is known of how it was built.
func versionLine(release string, info *debug.BuildInfo) string {
	var commit, dirty string
	if info == nil {
		info = &debug.BuildInfo{}
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if commit != "" {
		commit += dirty + ", "
	}
	number := strings.TrimPrefix(cmp.Or(release, info.Main.Version, "(devel)"), "v")
	return fmt.Sprintf("lockline %s (%s%s, %s/%s)", number, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
