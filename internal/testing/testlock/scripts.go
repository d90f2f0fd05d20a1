package testlock

import (
	"path"
	"sync"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/wire"
)

var scripts = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for _, name := range script.Names() {
		text := script.Text(name)
		names[text], names[wire.NewScript(text).Digest()] = path.Base(name), path.Base(name)
	}
	return names
})

// Script names the library's script that a request has the text or the digest of, without its folder; "" for
// others.
func Script(run string) string { return scripts()[run] }
