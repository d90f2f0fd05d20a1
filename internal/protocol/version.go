package protocol

import (
	"regexp"
	"runtime/debug"
	"sync"
)

// Version is the version of the protocol. The protocol consists of the keys, their fields, and the messages
// between sessions. A change of the protocol raises Version if sessions with and without the change do not
// work together. The table of protocols in CHANGELOG.md shows whether sessions of different versions exclude
// each other.
const Version = 3

const module = "github.com/lockline/lockline"

// library returns the version of this library with which the program was built. It returns "" if the program
// was built without modules.
var library = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return libraryIn(info)
})

func libraryIn(info *debug.BuildInfo) string {
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			if m.Replace != nil {
				m = m.Replace
			}
			return shorten(m.Version)
		}
	}
	return ""
}

var (
	pseudo = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})`)
	plain  = regexp.MustCompile(`^[0-9A-Za-z.+_-]{1,40}$`)
)

// shorten returns the short form of a version for holder infos. The form is short because each request for a
// lock has a holder info. If Go made the version from a commit, the short form is only the commit. If a
// version is empty, or has more than 40 characters or unusual characters, its short form is "devel".
func shorten(version string) string {
	if commit := pseudo.FindStringSubmatch(version); commit != nil {
		return commit[1]
	}
	if !plain.MatchString(version) {
		return "devel" // the version is "(devel)", or "" for a folder that replaces the module
	}
	return version
}
