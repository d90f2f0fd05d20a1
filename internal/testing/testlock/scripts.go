package testlock

import (
	"path"
	"strconv"
	"sync"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/wire"
)

// scripts returns the names of the library's scripts. The keys are the texts and the digests of the scripts.
var scripts = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for _, name := range script.Names() {
		text := script.Text(name)
		names[text], names[wire.NewScript(text).Digest()] = path.Base(name), path.Base(name)
	}
	return names
})

// Script returns the name, without its folder, of the library's script with this text or digest. It returns
// "" if the library has no such script.
func Script(run string) string { return scripts()[run] }

// Remains reports whether a request is a release after which the lock stays taken, as HoldAtLeast requires.
func Remains(r *faultproxy.Request) bool {
	if len(r.Args) < 3 {
		return false
	}
	keys, _ := strconv.Atoi(r.Args[2])
	name := Script(r.Script())
	return name == "remain" || name == "release" && len(r.Args)-3-keys == 7
}
