// Package explore visits every state of small worlds: a few sessions that use the library's own Lua scripts
// on a key space that can be copied and compared. The network delays, repeats and loses, sessions crash, and
// leases run out. Begin with world and search in search.go. A system (system.go) is a world of a server, a
// network, a clock and actors. Rules describe the actors of a kind of lock (lock.go, permits.go).
//
// Only tests use the package. docs/proof.md lists the results.
package explore

import (
	"fmt"
	"slices"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// World is a world that can be explored.
type World struct {
	Name  string
	About string
	Small bool // explored by each run of the tests; a large one takes minutes
	// scripts has the names of the scripts, by index.
	scripts []string
	build   func(scripts []*keyspace.Script) world
}

// Worlds returns all worlds.
func Worlds() []World { return slices.Concat(lockWorlds(), permitWorlds()) }

// Explore visits at most so many states of a world. text is script.Text, or returns scripts with a mutation.
func (w World) Explore(text func(name string) string, most int) (Result, error) {
	built, err := w.load(text)
	if err != nil {
		return Result{}, err
	}
	return search(built, most), nil
}

func (w World) load(text func(name string) string) (world, error) {
	var scripts []*keyspace.Script
	for _, name := range w.scripts {
		script, err := keyspace.Compile(name, text(name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		scripts = append(scripts, script)
	}
	return w.build(scripts), nil
}
