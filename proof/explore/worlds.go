// Package explore visits every state of small worlds: a few sessions that use the library's own Lua scripts on a key space that can be copied
// and compared. The network delays, repeats and loses, sessions crash, and leases run out. Begin with world and search in search.go. A
// system (system.go) is a world of servers, a network, a clock and actors; Rules say what actors do, a file for each kind.
//
// It is for tests alone. docs/proof.md says what was explored.
package explore

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// World is one of those that can be explored.
type World struct {
	Name  string
	About string
	Small bool // it is explored with all tests; others take minutes
	// scripts are the files of the scripts, by index.
	scripts []string
	build   func(scripts []*keyspace.Script) world
}

// Worlds are all there are.
func Worlds() []World { return slices.Concat(lockWorlds(), permitWorlds()) }

// Explore visits at most so many states of a world. root is the repository's folder. changed has the text of scripts, by file, that are other
// than in the repository.
func (w World) Explore(root string, changed map[string]string, most int) (Result, error) {
	built, err := w.load(root, changed)
	if err != nil {
		return Result{}, err
	}
	return search(built, most), nil
}

// texts are those of the scripts.
func (w World) texts(root string, changed map[string]string) ([]string, error) {
	var texts []string
	for _, file := range w.scripts {
		text, ok := changed[file]
		if !ok {
			read, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return nil, err
			}
			text = string(read)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

func (w World) load(root string, changed map[string]string) (world, error) {
	texts, err := w.texts(root, changed)
	if err != nil {
		return nil, err
	}
	var scripts []*keyspace.Script
	for i, text := range texts {
		script, err := keyspace.Compile(w.scripts[i], text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.scripts[i], err)
		}
		scripts = append(scripts, script)
	}
	return w.build(scripts), nil
}
