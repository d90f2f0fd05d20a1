// Package explore visits every state of small worlds: a few sessions that use the library's own Lua scripts
// on a key space that can be copied and compared. The network delays, repeats and loses, sessions crash, and
// leases run out. Begin with world and search in search.go. A system (system.go) is a world of a server, a
// network, a clock and actors; Rules say what actors do, a file for each kind.
//
// It is for tests alone. docs/proof.md says what was explored.
package explore

import (
	"fmt"
	"slices"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// World is one of those that can be explored.
type World struct {
	Name  string
	About string
	Small bool // it is explored with all tests; others take minutes
	// scripts are their names, by index.
	scripts []string
	build   func(scripts []*keyspace.Script) world
}

// Worlds are all there are.
func Worlds() []World { return slices.Concat(lockWorlds(), permitWorlds()) }

// Explore visits at most so many states of a world. text is script.Text, or one that breaks scripts.
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
