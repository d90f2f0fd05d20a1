package protocol

import (
	"regexp"
	"runtime/debug"
	"sync"
)

// Version is the version of the protocol: of keys, of their fields, and of messages between sessions. A
// change after which sessions of before and after do not work together raises it. The table of versions in
// CHANGELOG.md says which versions exclude each other.
const Version = 3

const module = "github.com/lockline/lockline"

// library returns the version of this library in the present program, as its go.mod or the tag of its commit
// has it. It returns "" if the program was built without modules.
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

// shorten returns a version as holder infos have it. Each request for a lock has a holder info, so of a
// version that Go made from a commit, only the commit is left. A version without a number is "devel".
func shorten(version string) string {
	if commit := pseudo.FindStringSubmatch(version); commit != nil {
		return commit[1]
	}
	if !plain.MatchString(version) {
		return "devel" // Go says "(devel)", or nothing for a folder that replaces the module
	}
	return version
}
