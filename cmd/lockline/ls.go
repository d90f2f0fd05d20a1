package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

const lsDescription = `Lists the locks that are held or waited for, of all kinds, and the latches that are
counted down. Of a latch, COUNT is what is left to count, HOLDER the party whose lease
ends first, and LEASE what is left of that. HELD FOR is since the holder's session got
it, of several holders the first one shown. PATTERN is a glob:
* stands for any characters, ? for one, [a-z] for one of these, and \ before one of
them for itself.

The keys are found with SCAN, on every master of a Cluster. That walks over all keys of
the database, in steps. It does not slow down others, but takes its time on a large one.
What is locked or freed meanwhile may be shown or not.

With --redisson only those locks are found that a Lockline session holds, or held
seconds ago: nothing tells the key of a JVM's lock from any other.`

func lsCommand() *cli.Command {
	return operatorCommand(&cli.Command{
		Name: "ls", Usage: "list the locks that are held or waited for", UsageText: "lockline ls [options] [PATTERN]",
		Description: lsDescription,
	}, false, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		if cmd.Args().Len() > 1 {
			return fmt.Errorf("ls takes one pattern at most, got %d; see lockline ls --help", cmd.Args().Len())
		}
		states, err := o.list(ctx, cmp.Or(cmd.Args().First(), "*"))
		if err != nil {
			return err
		}
		if o.json {
			return o.write(states)
		}
		return o.table(states)
	})
}

// found is a lock whose key was seen.
type found struct{ letter, name string }

// parts are the keys of a lock that were seen: that of its holder, and that of its queue. Those shared with
// Redisson have neither; they are found by another key, which says nothing of the two.
type parts struct{ held, queue bool }

func (o *operator) list(ctx context.Context, pattern string) ([]lockState, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("ls: not a pattern: %q", pattern)
	}
	locks, err := o.scan(ctx, pattern)
	if err != nil {
		return nil, err
	}
	states, err := o.inspectAll(ctx, slices.Collect(maps.Keys(locks)), 16)
	if err != nil {
		return nil, err
	}
	states = slices.DeleteFunc(states, lockState.gone)
	slices.SortFunc(states, func(a, b lockState) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind)) })
	return states, nil
}

// inspectAll asks for the holders of these locks, so many at once.
func (o *operator) inspectAll(ctx context.Context, locks []found, atOnce int) ([]lockState, error) {
	states := make([]lockState, len(locks))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(atOnce)
	for i, l := range locks {
		asking.Go(func() (err error) {
			states[i], err = o.inspect(ctx, l)
			return err
		})
	}
	return states, asking.Wait()
}

// scan finds keys on all masters. A name may be seen twice: SCAN says so itself,
// and slots move between masters.
func (o *operator) scan(ctx context.Context, pattern string) (map[found]parts, error) {
	var mu sync.Mutex // guards seen
	seen := map[found]parts{}
	match := glob(o.prefix) + ":*:{*}*"
	if o.redisson {
		match = "lockline_lock_memory:*"
	}
	err := eachMaster(ctx, o.rdb, func(ctx context.Context, master *redis.Client) error {
		keys := master.Scan(ctx, 0, match, 1000).Iterator()
		for keys.Next(ctx) {
			mu.Lock()
			if l, ok := o.lockOf(keys.Val()); ok && matches(pattern, l.name) {
				p, queue := seen[l], strings.HasSuffix(keys.Val(), ":q")
				if !o.redisson {
					p.queue, p.held = p.queue || queue, p.held || !queue
				}
				seen[l] = p
			}
			mu.Unlock()
		}
		return keys.Err()
	})
	return seen, err
}

func eachMaster(ctx context.Context, rdb redis.UniversalClient, do func(context.Context, *redis.Client) error) error {
	switch rdb := rdb.(type) {
	case *redis.ClusterClient:
		return rdb.ForEachMaster(ctx, do)
	case *redis.Client:
		return do(ctx, rdb)
	}
	return fmt.Errorf("no way to visit the servers of a %T", rdb)
}

func (o *operator) lockOf(key string) (lock found, ok bool) {
	if o.redisson {
		name, ok := redissonLockOf(key)
		return found{rlock.KindRedisson, name}, ok
	}
	letter, name, ok := lockOf(o.prefix, key)
	switch letter {
	case protocol.Turnstile: // which is no lock of users
		ok = false
	case protocol.Latch:
		ok = ok && o.latches
	}
	return found{letter, name}, ok
}

// inspect asks for the holder of a lock. A lock of a kind that a newer Lockline made is
// only named, and one whose key is something else says so.
func (o *operator) inspect(ctx context.Context, l found) (lockState, error) {
	i := slices.IndexFunc(o.kinds, func(k lockKind) bool { return k.letter == l.letter })
	if i < 0 {
		return lockState{Name: l.name, Kind: l.letter, Error: "a kind of lock that this program does not know"}, nil
	}
	st, err := o.kinds[i].at(o.session, l.name).state(ctx)
	if err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
		return lockState{Name: l.name, Kind: o.kinds[i].name, Error: "its key is something else: " + say(err)}, nil
	}
	return st.aged(time.Now()), err
}

// matches is path.Match on a name that is no path.
func matches(pattern, name string) bool {
	noPath := strings.NewReplacer("/", "\x00")
	ok, _ := path.Match(noPath.Replace(pattern), noPath.Replace(name))
	return ok
}

// glob makes Redis take s as it is.
func glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

func (o *operator) table(states []lockState) error {
	if len(states) == 0 {
		return nil // as ls(1)
	}
	w := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tKIND\tCOUNT\tHELD FOR\tLEASE\tTOKEN\tWAITING\tHOLDER")
	for _, s := range states {
		switch {
		case s.Error != "":
			fmt.Fprintf(w, "%s\t%s\t\t\t\t\t\t%s\n", printable(s.Name), s.Kind, printable(s.Error))
		case s.counts():
			left := ""
			if s.leased() {
				left = s.remaining()
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t\t%s\t\t\t%s\n", printable(s.Name), s.Kind, s.Count, left, s.heldBy())
		case s.Held:
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", printable(s.Name), s.Kind, s.count(), s.heldFor(), s.remaining(), s.Token, len(s.Queue), s.heldBy())
		default:
			fmt.Fprintf(w, "%s\t%s\t\t\t\t%d\t%d\t\n", printable(s.Name), s.Kind, s.Token, len(s.Queue))
		}
	}
	return w.Flush()
}
