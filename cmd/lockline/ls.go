package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

const lsDescription = `Lists the locks of all kinds that are held or waited for, and the latches that are
counted down. For a latch, COUNT is the number that is left to count, HOLDER is the
party whose lease ends first, and LEASE is the rest of that lease. HELD FOR is the
time since the holder's session got the lock. If there are several holders, the
first one is shown. WAITING is the length of the queue, and FIRST is the time for
which its first entry has waited. Goroutines of a process can share an entry. Redis
does not know the queues of RedLocks, of locks with --redisson and of latches. If
locks of several kinds with one name are held, stderr names them, because they do
not exclude each other.

With --waits, it lists the waiters instead, each with a holder for which it waits.
Sessions that seem to wait for each other have the same number in the column CIRCLE.
A circle may be a deadlock or not, because the goroutines of a session hold and wait
independently. Waits of less than a second, and waits for elections, are not part of
a circle. The queues of RedLocks and of locks with --redisson are not seen.

PATTERN is a glob: * matches any characters, ? matches one character, and [a-z]
matches one of these characters. Each of these signs matches itself after a \. If
nothing is found, a message says so, but only on a terminal.

SCAN finds the keys, on every master of a Cluster. It does not slow down other
clients, but takes long on a large database. A lock that is taken or freed meanwhile
may be shown or not. If some masters do not answer, the locks of the other masters
are shown, and the exit code is 125.

With --redisson, it finds only locks that a Lockline session holds, or held some
seconds ago, because the key of a JVM's lock looks like any other key.`

func lsCommand() *cli.Command {
	return operatorCommand(&cli.Command{
		Name: "ls", Usage: "list the locks that are held or waited for", ArgsUsage: onePattern,
		Description: lsDescription,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "waits",
			Usage: "list who waits for whom, and sessions that seem to wait for each other"}},
	}, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		switch {
		case cmd.Bool("waits") && o.redisson:
			return misused(cmd, "ls: Redis does not know the waiters of locks with --redisson")
		case cmd.Bool("waits"):
			return o.listWaits(ctx, cmd.Root().ErrWriter)
		}
		states, err := o.list(ctx)
		lacking, incomplete := errors.AsType[*incomplete](err)
		if err != nil && !incomplete {
			return err
		}
		for _, name := range severalKinds(states) {
			complain(cmd.Root().ErrWriter, fmt.Errorf("%s: %s", name, severalDo))
		}
		switch {
		case o.json:
			err = o.write(states)
		case len(states) == 0 && !incomplete && terminal(o.out):
			complain(cmd.Root().ErrWriter, o.nothing())
			fallthrough
		default:
			err = o.table(states)
		}
		if err == nil && incomplete {
			return lacking
		}
		return err
	})
}

// incomplete is the error of a list in which the locks of some nodes of a Cluster are missing.
type incomplete struct{ nodes []error }

func (e *incomplete) Error() string {
	var texts []string
	for _, err := range e.nodes {
		texts = append(texts, say(err))
	}
	slices.Sort(texts)
	return "the locks of some nodes are not known: " + strings.Join(texts, "; ")
}

// nothing returns the error that ls prints if it has found nothing. The error names the prefix, because a
// wrong prefix is a likely reason.
func (o *operator) nothing() error {
	of := ""
	if o.pattern != "*" {
		of = fmt.Sprintf(" of the names %q", o.pattern)
	}
	return fmt.Errorf("nothing%s is held or waited for (%s)", of, o.where())
}

// A found is a lock for which scan has found a key.
type found struct {
	kind rlock.Kind
	name string
}

// atOnce is the number of locks that are inspected at the same time, so that their requests share pipelines.
const atOnce = 100

// list returns the locks that ls and top show, sorted by name and kind. If some nodes of a Cluster fail, it
// returns the locks of the other nodes, and an *incomplete.
func (o *operator) list(ctx context.Context) ([]lockState, error) {
	seen, lacking, err := o.scan(ctx)
	if err != nil {
		return nil, err
	}
	locks := slices.Collect(maps.Keys(seen))
	states := make([]lockState, len(locks))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(atOnce)
	for i, l := range locks {
		asking.Go(func() (err error) {
			states[i], err = o.inspect(ctx, l)
			if err != nil && lacking != nil && ctx.Err() == nil { // perhaps no node serves its slot
				states[i], err = notKnown(l.name, l.kind, say(err)), nil
			}
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	states = slices.DeleteFunc(states, lockState.gone)
	slices.SortFunc(states, func(a, b lockState) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	if lacking != nil {
		return states, lacking
	}
	return states, nil
}

// severalDo is the remedy for the names that severalKinds returns.
const severalDo = "locks of several kinds have this name, and do not exclude each other; " +
	"let all programs use one kind, or another name for each"

// severalKinds returns each name for which locks of several kinds are held or waited for, with the kinds. The
// states must be sorted by name. Latches are left out, because they exclude nobody.
func severalKinds(states []lockState) (names []string) {
	latch := func(s lockState) bool { return s.Kind == rlock.KindLatch.String() }
	states = slices.DeleteFunc(slices.Clone(states), latch)
	for i := 0; i < len(states); {
		name, kinds := states[i].Name, []string(nil)
		for ; i < len(states) && states[i].Name == name; i++ {
			kinds = append(kinds, printable(states[i].Kind))
		}
		if len(kinds) > 1 {
			names = append(names, fmt.Sprintf("%q (%s)", name, strings.Join(kinds, ", ")))
		}
	}
	return names
}

// scan returns the locks whose keys it finds on all masters, except locks that are known to be free. The
// result is a set, because SCAN may return a key twice, and slots may move between masters. If some masters
// of a Cluster fail, scan also returns their errors.
func (o *operator) scan(ctx context.Context) (map[found]bool, *incomplete, error) {
	var mu sync.Mutex // guards seen, scanned and lacking
	seen, scanned := map[found]bool{}, 0
	var lacking incomplete
	match := glob(o.prefix) + ":*:{*}*"
	if o.redisson {
		match = "lockline_lock_memory:*"
	}
	err := eachMaster(ctx, o.rdb, func(ctx context.Context, master *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := master.Scan(ctx, cursor, match, scanPage).Result()
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				where := fmt.Errorf("node %s: %w%s", serverName(master), err, wire.Hint(err))
				lacking.nodes = append(lacking.nodes, where)
				return err
			}
			locks := o.locksOf(ctx, master, keys)
			mu.Lock()
			maps.Copy(seen, locks)
			mu.Unlock()
			if cursor = next; cursor == 0 {
				mu.Lock()
				defer mu.Unlock()
				scanned++
				return nil
			}
		}
	})
	if err != nil && scanned > 0 && len(lacking.nodes) > 0 && ctx.Err() == nil {
		return seen, &lacking, nil
	}
	return seen, nil, err
}

// scanPage is the approximate number of keys that Redis examines for one SCAN.
const scanPage = 1000

// locksOf returns the locks of these keys whose names match the pattern, except locks that are known to be
// free. A server may remember the tokens of very many free locks. locksOf finds these locks with one
// pipeline, so that list need not inspect each of them.
func (o *operator) locksOf(ctx context.Context, master *redis.Client, keys []string) map[found]bool {
	locks, hashes := map[found]bool{}, map[found]*redis.SliceCmd{}
	pipe := master.Pipeline()
	clock := pipe.Time(ctx)
	for _, key := range keys {
		l, ok := o.lockOf(key)
		if !ok || !matches(o.pattern, l.name) {
			continue
		}
		letters := []string{protocol.Reentrant, protocol.Fair, protocol.RedLock}
		if strings.HasSuffix(key, "}") && slices.Contains(letters, string(l.kind)) {
			hashes[l] = pipe.HMGet(ctx, key, "lives", "queued", "owner", "ends")
		} else {
			locks[l] = true
		}
	}
	if len(hashes) == 0 {
		return locks
	}
	// If a request fails, for example because the key has another type, the lock counts as not free.
	_, _ = pipe.Exec(ctx)
	for l, fields := range hashes {
		if !isFree(fields.Val(), clock.Val()) {
			locks[l] = true
		}
	}
	return locks
}

// isFree reports whether a lock is known to have no holder and no waiters. fields are the values of the
// fields lives, queued, owner and ends of its hash. now is the Redis time. If now is zero, the time is not
// known.
func isFree(fields []any, now time.Time) bool {
	if len(fields) != 4 || fields[0] == nil || fields[1] != nil {
		return false
	}
	ends, _ := fields[3].(string)
	micros, err := strconv.ParseInt(ends, 10, 64)
	return fields[2] == nil || err == nil && micros <= now.UnixMicro() && !now.IsZero()
}

// eachMaster calls do for a single server, or for all masters of a Cluster at the same time. It adds a hint
// to the error.
func eachMaster(
	ctx context.Context, rdb redis.UniversalClient, do func(context.Context, *redis.Client) error,
) (err error) {
	switch rdb := rdb.(type) {
	case *redis.ClusterClient:
		err = rdb.ForEachMaster(ctx, do)
	case *redis.Client: // target.open returns no other type
		err = do(ctx, rdb)
	}
	if err != nil {
		err = fmt.Errorf("%w%s", err, wire.Hint(err))
	}
	return err
}

// lockOf returns the lock to which a key belongs. The key prefix:KIND:{NAME} is the hash of a lock, and the
// key prefix:KIND:{NAME}:q is the queue of the lock. ok is false for all other keys. With --redisson, lockOf
// does the same as redissonLockOf.
func (o *operator) lockOf(key string) (l found, ok bool) {
	if o.redisson {
		name, ok := redissonLockOf(key)
		return found{rlock.KindRedisson, name}, ok
	}
	rest, ok := strings.CutPrefix(key, o.prefix+":")
	if !ok {
		return l, false
	}
	letter, rest, ok := strings.Cut(rest, ":{")
	// A kind has no colon. Locks of the kind Turnstile are internal, so they are not shown.
	if !ok || strings.Contains(letter, ":") || letter == protocol.Turnstile {
		return l, false
	}
	name, ok := strings.CutSuffix(rest, "}")
	if !ok {
		name, ok = strings.CutSuffix(rest, "}:q")
	}
	// If a name begins with a closing brace or a backslash, the key has a backslash before the name.
	return found{rlock.Kind(letter), strings.TrimPrefix(name, `\`)}, ok && name != ""
}

// redissonLockOf returns the name of a lock that is shared with Redisson. key is the key of the lock's
// metadata. It ends with {NAME}, or with :NAME if NAME has braces. ok is false for all other keys.
func redissonLockOf(key string) (name string, ok bool) {
	tail, ok := strings.CutPrefix(key, "lockline_lock_memory:")
	if !ok {
		return "", false
	}
	if name, ok = strings.CutPrefix(tail, ":"); ok {
		return name, true
	}
	return strings.CutSuffix(strings.TrimPrefix(tail, "{"), "}")
}

// inspect returns the state of a lock. If this program does not know the kind, or if the key is not a lock,
// the state has an error.
func (o *operator) inspect(ctx context.Context, l found) (lockState, error) {
	i := slices.IndexFunc(o.kinds, func(k lockKind) bool { return k.Kind == l.kind })
	if i < 0 {
		return notKnown(l.name, l.kind, "a kind of lock that this program does not know"), nil
	}
	st, err := o.kinds[i].at(o.session, l.name).state(ctx)
	_, odd := errors.AsType[*wire.ValueError](err)
	if odd || err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
		return notKnown(l.name, l.kind, "its key is something else: "+say(err)), nil
	}
	return st.aged(time.Now()), err
}

// matches reports whether a name matches a pattern of path.Match. A name is not a path, so "/" is treated
// like any other character.
func matches(pattern, name string) bool {
	noPath := strings.NewReplacer("/", "\x00")
	ok, _ := path.Match(noPath.Replace(pattern), noPath.Replace(name))
	return ok
}

// glob returns a pattern for SCAN that matches only s.
func glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// A column is a column of the table that ls and top show.
type column struct {
	name  string
	width int // width in top; 0: the column shares the remaining width with others
	cell  func(lockState) string
}

var columns = []column{
	{"NAME", 0, func(s lockState) string { return printable(s.Name) }},
	{"KIND", 9, func(s lockState) string { return printable(s.Kind) }},
	{"COUNT", 5, func(s lockState) string {
		if s.Count == 0 {
			return ""
		}
		return s.count()
	}},
	{"HELD FOR", 8, lockState.heldFor},
	{"LEASE", 6, func(s lockState) string {
		if !s.leased() {
			return ""
		}
		return short(s.RemainingMS)
	}},
	{"TOKEN", 16, func(s lockState) string {
		if s.Error != "" || s.Kind == rlock.KindLatch.String() {
			return ""
		}
		return strconv.FormatInt(s.Token, 10)
	}},
	{"WAITING", 7, func(s lockState) string {
		switch {
		case s.Error != "" || s.Kind == rlock.KindLatch.String():
			return ""
		case s.Kind == rlock.KindRedLock.String() || s.Kind == rlock.KindRedisson.String():
			return "?" // Redis does not know the waiters
		}
		return strconv.Itoa(len(s.Queue))
	}},
	{"FIRST", 6, func(s lockState) string {
		if len(s.Queue) == 0 {
			return ""
		}
		return short(s.Queue[0].AgeMS)
	}},
	{"HOLDER", 0, func(s lockState) string { return cmp.Or(printable(s.Error), s.heldBy()) }},
}

// table returns a row with the names of the columns, and then a row for each lock.
func table(shown []column, states []lockState) [][]string {
	rows := make([][]string, 1+len(states))
	for _, c := range shown {
		rows[0] = append(rows[0], c.name)
		for i, s := range states {
			rows[1+i] = append(rows[1+i], c.cell(s))
		}
	}
	return rows
}

func (o *operator) table(states []lockState) error {
	if len(states) == 0 {
		return nil // ls(1) prints nothing for an empty folder either
	}
	return writeTable(o.out, table(columns, states))
}
