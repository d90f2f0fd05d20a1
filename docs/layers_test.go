package docs

import (
	"bytes"
	"go/build"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// layers has the packages of the library. The first layer is the lowest. A package imports only packages of
// layers below its own.
var layers = [][]string{
	{"internal/contain", "internal/failure", "internal/script"},
	{"internal/wire", "pubsub", "watchdog"},
	{"internal/protocol"},
	{"internal/handle", "internal/session"},
	{"internal/call"},
	{"internal/engine"},
	{"rlock"},
	{"internal/inner"},
	{"fairlock", "latch", "redisson", "rwlock", "semaphore"},
	{"election", "multilock"},
}

// forUsersTests are the packages that the tests of users import, the lowest layer first. They import packages
// of the library, and no package of the library imports them.
var forUsersTests = [][]string{
	{"internal/testing/faultproxy"},
	{"internal/testing/memserver"},
	{"locktest"},
}

// forTests are the packages that only tests, demos and benchmarks import. No package of the library imports
// them.
var forTests = []string{"docs", "internal/child", "internal/testing/contract", "internal/testing/fake",
	"internal/testing/standin", "internal/testing/testlock", "internal/testing/testredis",
	"interop/protocols", "interop/redisson"}

// longest is the highest number of lines of a file of the library. Files must be short, so that readers find
// code by the names of files.
const longest = 700

func TestPackagesImportOnlyWhatIsBelowThemAndSayWhatTheyAre(t *testing.T) {
	const module = "github.com/lockline/lockline"
	layer := map[string]int{}
	for i, folders := range slices.Concat(layers, forUsersTests) {
		for _, folder := range folders {
			layer[folder] = i
		}
	}
	seen := 0
	err := filepath.WalkDir("..", func(dir string, d os.DirEntry, err error) error {
		folder := filepath.ToSlash(strings.TrimPrefix(dir, ".."+string(filepath.Separator)))
		switch {
		case err != nil || !d.IsDir():
			return err
		case strings.HasPrefix(d.Name(), ".") && dir != ".." || d.Name() == "testdata":
			return filepath.SkipDir
		case dir != "..":
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil { // another module
				return filepath.SkipDir
			}
		}
		p, err := build.ImportDir(dir, 0)
		if _, none := err.(*build.NoGoError); none {
			return nil
		}
		if err != nil {
			return err
		}
		if p.Doc == "" && p.Name != "docs" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", folder)
		}
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				return err
			}
			if lines := bytes.Count(text, []byte("\n")); lines > longest {
				t.Errorf("%s/%s has %d lines, over %d", folder, file, lines, longest)
			}
		}
		own, listed := layer[folder]
		if !listed {
			if !slices.Contains(forTests, folder) {
				t.Errorf("%s is in no layer", folder)
			}
			return nil
		}
		seen++
		for _, imported := range p.Imports {
			other, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			if below, ok := layer[path.Clean(other)]; !ok || below >= own {
				t.Errorf("%s imports %s, which is not below it", folder, other)
			}
		}
		return nil
	})
	testlock.Must(t, err)
	if seen != len(layer) {
		t.Errorf("%d packages of %d in layers were found", seen, len(layer))
	}
}

// mapped matches the name of a package in the first cell of a row of the table.
var mapped = regexp.MustCompile("`([\\w/]+)`")

func TestTheMapOfTheDesignHasEachPackageAboveThePackagesThatItImports(t *testing.T) {
	page, err := os.ReadFile("design.md")
	testlock.Must(t, err)
	_, table, _ := strings.Cut(string(page), "## The packages\n")
	table, _, _ = strings.Cut(table, "\n## ")
	layer, number := map[string]int{}, 0
	for i, folders := range layers {
		for _, folder := range folders {
			layer[folder] = i
			number++
		}
	}
	highest := len(layers)
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range mapped.FindAllStringSubmatch(cells[1], -1) {
			of, known := layer[m[1]]
			if !known || of > highest {
				t.Errorf("%s: not a package of the library, listed twice, or too far down", m[1])
			}
			highest = min(highest, of)
			delete(layer, m[1])
		}
	}
	for folder := range layer {
		t.Errorf("%s is not on the map", folder)
	}
	if len(layer) == number {
		t.Error("no map was found")
	}
}

// modules are the other modules whose packages the library may import. Package locktest may also import
// packages of modulesForTests. A program that does not import locktest must not build packages of
// modulesForTests.
var modules, modulesForTests = []string{"github.com/google/uuid", "github.com/redis/go-redis/v9"},
	[]string{"github.com/alicebob/miniredis/v2"}

func TestAProgramBuildsTheServerInMemoryOnlyIfItImportsLocktest(t *testing.T) {
	check := func(folders []string, allowed []string, forTests bool) {
		for _, folder := range folders {
			p, err := build.ImportDir(filepath.Join("..", folder), 0)
			testlock.Must(t, err)
			for _, imported := range p.Imports {
				first, _, _ := strings.Cut(imported, "/")
				switch external := strings.Contains(first, "."); {
				case strings.HasPrefix(imported, "github.com/lockline/lockline/"): // checked by another test
				case external && !slices.ContainsFunc(allowed, func(module string) bool {
					return imported == module || strings.HasPrefix(imported, module+"/")
				}), !external && first == "testing" && !forTests:
					t.Errorf("%s imports %s", folder, imported)
				}
			}
		}
	}
	check(slices.Concat(layers...), modules, false)
	check(slices.Concat(forUsersTests...), slices.Concat(modules, modulesForTests), true)
}
