// Command walk counts the functions, files and packages of the library that run in a Lock and an Unlock.
// These numbers show how much code a reader must follow. The command must be built with -cover, as tools/dev
// walk does.
package main

import (
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"runtime/coverage"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

const module = "github.com/lockline/lockline/"

// client has a session on each of three servers.
type client []*rlock.Session

func newClient(servers []*miniredis.Miniredis) (c client) {
	for _, s := range servers {
		session, err := rlock.NewSession(redis.NewClient(&redis.Options{Addr: s.Addr()}))
		check(err)
		c = append(c, session)
	}
	return c
}

func main() {
	log.SetFlags(0)
	var servers []*miniredis.Miniredis
	for range 3 {
		s := miniredis.NewMiniRedis()
		check(s.Start())
		servers = append(servers, s)
	}
	one, other := newClient(servers), newClient(servers)
	all := len(os.Args) > 1 && os.Args[1] == "-v"
	fmt.Printf("%-36s %9s %5s %8s\n", "", "functions", "files", "packages")
	walk("uncontended rlock", all, func() { cycle(rlock.New(one[0], "uncontended")) })
	walk("rlock, from another session", all, func() {
		ctx := context.Background()
		_, hold, err := rlock.New(one[0], "handed").Lock(ctx)
		check(err)
		check(coverage.ClearCounters())
		go func() {
			for !servers[0].Exists("lockline:r:{handed}:q") { // until the other session waits
				time.Sleep(time.Millisecond)
			}
			check(hold.Unlock(ctx))
		}()
		cycle(rlock.New(other[0], "handed"))
	})
	quorum, err := multilock.NewQuorum(one)
	check(err)
	walk("RedLock on three servers", all, func() { cycle(quorum.New("uncontended")) })
}

func cycle(l rlock.Locker) {
	_, hold, err := l.Lock(context.Background())
	check(err)
	check(hold.Unlock(context.Background()))
}

// walk calls f twice to warm up, and then counts the code that runs in a third call. It prints the numbers
// and, if all is true, the names of the packages and functions.
func walk(name string, all bool, f func()) {
	f()
	f()
	folder, err := os.MkdirTemp("", "walk")
	check(err)
	defer os.RemoveAll(folder)
	check(coverage.ClearCounters())
	f()
	check(coverage.WriteMetaDir(folder))
	check(coverage.WriteCountersDir(folder))
	text, err := exec.Command("go", "tool", "covdata", "func", "-i", folder).Output()
	check(err)
	functions, files, packages := 0, map[string]bool{}, map[string]bool{}
	var names []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line) // FILE:LINE: FUNCTION SHARE
		if len(words) < 3 || words[len(words)-1] == "0.0%" || !strings.HasPrefix(words[0], module) {
			continue
		}
		file, _, _ := strings.Cut(strings.TrimPrefix(words[0], module), ":")
		if strings.HasPrefix(file, "proof/") {
			continue
		}
		functions++
		files[file], packages[path.Dir(file)] = true, true
		names = append(names, file+" "+strings.Join(words[1:len(words)-1], " "))
	}
	fmt.Printf("%-36s %9d %5d %8d\n", name, functions, len(files), len(packages))
	if all {
		fmt.Println(strings.Join(slices.Sorted(maps.Keys(packages)), " "))
		fmt.Println("  " + strings.Join(names, "\n  "))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal("walk: ", err)
	}
}
