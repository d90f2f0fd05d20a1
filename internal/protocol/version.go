package protocol

import (
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// Version is the version of the protocol: of keys, of their fields, and of messages between sessions. A
// change after which sessions of before and after do not work together raises it. The table of versions in
// CHANGELOG.md says which versions exclude each other.
const Version = 3

// HolderInfo returns the holder info of a session: PID@HOST/PROTOCOL:LIBRARY LABEL. PROTOCOL is Version, and
// LIBRARY the version of this library. Without a version of the library, ":LIBRARY" is missing.
func HolderInfo(pid int, host, label string) string {
	speaks := "/" + strconv.Itoa(Version)
	if v := library(); v != "" {
		speaks += ":" + v
	}
	return strconv.Itoa(pid) + "@" + host + speaks + " " + label
}

// splitInfo returns the parts of a holder info. Infos of older sessions have no versions, and another
// library may write anything.
func splitInfo(info string) (pid int, host string, protocol int, library, label string) {
	who, label, _ := strings.Cut(info, " ")
	id, host, _ := strings.Cut(who, "@")
	pid, _ = strconv.Atoi(id)
	if i := strings.LastIndexByte(host, '/'); i >= 0 {
		number, version, _ := strings.Cut(host[i+1:], ":")
		if n, err := strconv.Atoi(number); err == nil && n > 0 {
			host, protocol, library = host[:i], n, version
		}
	}
	return pid, host, protocol, library, label
}

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
