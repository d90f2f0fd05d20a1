package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

const doctorDescription = `Looks for everything that could lose, delay or refuse a lock, on the server or on
every master of a Cluster. It reads INFO, CONFIG and TIME. It looks for names that
are locked (SCAN), and for sessions that wait for each other. It also takes, hands
over and frees locks of its own ("lockline-doctor-..."). It does all this as the
user of the URL. Run it as the user of your program, to see whether the rights
suffice, and as an administrator, to see all settings.

With Sentinels (?master_name=NAME), it also looks at them: whether they answer,
their quorum, and the time that a failover takes, compared with the lease of your
programs (--lease). With --also for each of the other servers, it looks at all
servers of a RedLock, alone and together.

Each finding that is not "ok" names a remedy, and a heading of docs/operations.md or
docs/failures.md.

Exit code: 0; 1 if a finding is a failure; 125 if the arguments are wrong.`

// A finding is the result of a check of one server, or of all servers together. --json prints it as JSON.
type finding struct {
	Server string `json:"server,omitempty"`
	Check  string `json:"check"`
	judgment
	See     string          `json:"see,omitempty"`     // page and heading of the documentation
	Circles []waitingCircle `json:"circles,omitempty"` // circles that the check "waits" found
}

// A judgment is the conclusion of a check.
type judgment struct {
	Status status `json:"status"`
	Found  string `json:"found"`
	Do     string `json:"do,omitempty"`
}

type status string

const (
	fine    status = "ok"
	unknown status = "unknown" // the check could not be made
	warning status = "warning" // after a further failure, locks may be lost or delayed
	failure status = "failure" // locks are lost or refused
)

func doctorCommand() *cli.Command {
	return operatorCommand(&cli.Command{
		Name: "doctor", Usage: "look for what could go wrong with locks on this Redis",
		Description: doctorDescription,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "also",
				Usage: "`URL` of another server of a RedLock; may be given again"},
			&cli.DurationFlag{Name: "lease", Value: protocol.DefaultLease,
				Usage: "lease of your programs (WithWatchdogTimeout)"},
		},
	}, func(ctx context.Context, o *operator, cmd *cli.Command) error {
		if err := checkTime(cmd, "lease", protocol.MinLease); err != nil {
			return err
		}
		o.lease = cmd.Duration("lease")
		findings, err := o.examineAll(ctx, cmd.StringSlice("also"), time.Now)
		if err != nil {
			return err
		}
		if o.json {
			if err := o.write(findings); err != nil {
				return err
			}
		} else {
			printFindings(o.out, findings)
		}
		if slices.ContainsFunc(findings, func(f finding) bool { return f.Status == failure }) {
			return &exitError{code: exitWrong}
		}
		return nil
	})
}

func printFindings(out io.Writer, findings []finding) {
	server, said := "", map[string]bool{"": true} // a remedy is printed once, even for many findings
	for _, f := range findings {
		if f.Server != server && f.Server != "" {
			server = f.Server
			fmt.Fprintln(out, server)
		}
		fmt.Fprintf(out, "  %-8s %-13s %s\n", f.Status, f.Check, printable(f.Found))
		if !said[f.Do] {
			fmt.Fprintf(out, "  %-8s %-13s -> %s\n", "", "", f.Do+"; see "+f.See)
			said[f.Do] = true
		}
	}
}

// examine returns the findings about the servers of o, and about the Sentinels of the URL. now is the clock
// of this machine.
func (o *operator) examine(ctx context.Context, now func() time.Time) []finding {
	o.lease = cmp.Or(o.lease, protocol.DefaultLease)
	findings := o.examineServer(ctx, now)
	sentinels, master := o.at.checkSentinels(ctx, o.lease)
	findings = append(findings, sentinels...)
	for i, f := range findings {
		findings[i].See = f.symptom()
		if f.Server == unnamedMaster && master != "" {
			findings[i].Server = master + ", " + unnamedMaster
		}
	}
	return findings
}

// examineServer examines a server, or each master of a Cluster.
func (o *operator) examineServer(ctx context.Context, now func() time.Time) []finding {
	if o.down != nil {
		return []finding{{Server: o.down.host, Check: "reach", judgment: unreached(o.down)}}
	}
	var (
		mu       sync.Mutex // guards findings
		findings []finding
	)
	err := eachMaster(ctx, o.rdb, func(ctx context.Context, server *redis.Client) error {
		f := ask(ctx, server, now)
		f.lease = o.lease
		mu.Lock()
		defer mu.Unlock()
		o.seen = append(o.seen, f)
		for _, c := range checks {
			says := judgment{unknown, "this user may not ask INFO", adminDo}
			if f.info != nil || !c.info {
				says = c.judge(f)
			}
			findings = append(findings, finding{Server: f.server, Check: c.name, judgment: says})
		}
		return nil
	})
	if err == nil && len(findings) == 0 {
		err = errors.New("no server of the Cluster serves any slot")
	}
	if err != nil {
		findings = append(findings, finding{Check: "reach", judgment: unreached(err)})
	}
	byServer := func(a, b finding) int { return cmp.Compare(a.Server, b.Server) }
	slices.SortStableFunc(findings, byServer)
	down := func(f finding) bool { return f.Check == "reach" && f.Status == failure }
	if slices.ContainsFunc(findings, down) {
		// The other checks of a server that is down have no facts, so their findings are left out. A trial of
		// locks would only take long.
		return slices.DeleteFunc(findings, func(f finding) bool { return f.Status == unknown })
	}
	ofAll := append(o.checkLocked(ctx), finding{Check: "locks", judgment: o.tryLocks(ctx)})
	findings = append(findings, o.checkPaces(ctx, o.seen, now)...)
	slices.SortStableFunc(findings, byServer)
	return append(findings, ofAll...)
}

// scanTime limits the search for names, because the scan of a large database can take much longer.
const scanTime = 10 * time.Second

// checkLocked looks at all names that are locked or waited for. It finds names with locks of several kinds,
// because such locks do not exclude each other. It also finds sessions of several versions of the protocol,
// and sessions that wait for each other.
func (o *operator) checkLocked(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	begun := time.Now()
	states, err := o.list(ctx)
	var found []waitingCircle
	if err == nil {
		_, found, err = o.waitsOf(ctx, states, max(leastWait, time.Since(begun)))
	}
	names, versions, waits := judgeNames(severalKinds(states)), judgeVersions(states), judgeWaits(found)
	if err != nil {
		names, versions, waits = unlisted(err), unlisted(err), unlisted(err)
	}
	findings := []finding{{Check: "names", judgment: names}, {Check: "versions", judgment: versions}}
	if !o.redisson { // Redis does not know the waiters of locks with --redisson
		findings = append(findings, finding{Check: "waits", judgment: waits, Circles: found})
	}
	return findings
}

// unlisted returns the judgment for the checks of checkLocked if the locks could not be listed. err is the
// reason.
func unlisted(err error) judgment {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return judgment{unknown, fmt.Sprintf("SCAN takes longer than %v", scanTime), "see lockline ls"}
	case strings.Contains(err.Error(), "NOPERM"):
		return judgment{unknown, "this user may not SCAN", adminDo}
	}
	return judgment{unknown, say(err), "see the error"}
}

func judgeNames(several []string) judgment {
	if len(several) > 0 {
		return judgment{warning, strings.Join(several, ", "), severalDo}
	}
	return judgment{fine, "no name is locked in two kinds", ""}
}

// facts has the data about one server that the checks need.
type facts struct {
	server  string
	err     error             // error of TIME; the facts below are missing then
	info    map[string]string // fields of INFO; nil if the user may not read them
	calls   map[string]int64  // number of runs of each command; nil if it is not known
	config  map[string]string // settings; settings that the user may not read are missing
	replica bool              // the server is a replica, by its reply to HELLO
	clock   clockReading
	ahead   time.Duration // how far the clock of the server is ahead of this machine's
	rtt     time.Duration // round trip of the request for the time; ahead can be wrong by half of it
	lease   time.Duration // lease of the programs
}

// settings has the names of the settings that the checks need.
var settings = []string{"save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write",
	"client-output-buffer-limit", "maxclients", "lua-time-limit", "maxmemory-clients",
	"no-appendfsync-on-rewrite", "cluster-node-timeout", "min-replicas-max-lag",
	"cluster-require-full-coverage"}

const unnamedMaster = "the master that the Sentinels name"

func serverName(server *redis.Client) string {
	if addr := server.Options().Addr; addr != "FailoverClient" { // go-redis hides the master's address
		return addr
	}
	return unnamedMaster
}

// ask reads the facts about a server.
func ask(ctx context.Context, server *redis.Client, now func() time.Time) facts {
	f := facts{server: serverName(server), config: map[string]string{}}
	// The first TIME may have to dial, which would make the round trip longer, so TIME is sent twice. If the
	// second TIME fails, the server cannot be reached, or refuses this user.
	server.Time(ctx)
	if f.clock, f.err = readClock(ctx, server, now); f.err != nil {
		return f
	}
	f.rtt, f.ahead = f.clock.rtt, f.clock.server.Sub(f.clock.local)
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello") // every user may send HELLO
	f.replica = server.Process(ctx, hello) == nil && isReplica(hello.Val())
	if sections, err := server.InfoMap(ctx).Result(); err == nil {
		f.info = map[string]string{}
		for _, section := range sections {
			maps.Copy(f.info, section)
		}
	}
	if stats, err := server.InfoMap(ctx, "commandstats").Result(); err == nil {
		for _, section := range stats {
			f.calls = callsOf(section)
		}
	}
	if f.info["cluster_enabled"] == "1" {
		for line := range strings.Lines(server.ClusterInfo(ctx).Val()) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				f.info[k] = v
			}
		}
	}
	for _, name := range settings {
		if got, err := server.ConfigGet(ctx, name).Result(); err == nil {
			maps.Copy(f.config, got)
		}
	}
	return f
}

func (f facts) number(name string) int64 {
	n, _ := strconv.ParseInt(f.info[name], 10, 64)
	return n
}

// tryLocks takes, hands over and frees a lock of each kind, except a latch and a RedLock. It has the rights
// of the user of the URL.
func (o *operator) tryLocks(ctx context.Context) judgment {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	var names []string
	for _, k := range o.kinds {
		// A latch is no lock. A RedLock needs no further rights, and its key would stay in Redis for ten
		// minutes.
		if k.Kind == rlock.KindLatch || k.Kind == rlock.KindRedLock {
			continue
		}
		name := "lockline-doctor-" + rand.Text()
		if err := o.tryKind(ctx, k, name); err != nil {
			found := fmt.Sprintf("a %v lock: %s", k.Kind, strings.Replace(say(err), wire.RunDoctor, "", 1))
			do := locksDo(err)
			if strings.HasPrefix(do, rightsDo) {
				if rules := o.missingRights(context.WithoutCancel(ctx)); rules != nil {
					do = rightsDo + ": it lacks " + strings.Join(rules, " ")
				}
			}
			return judgment{failure, found, do + o.sweep(k, name)}
		}
		names = append(names, k.String())
	}
	done := "taken, nested, waited for, handed over and freed: "
	return judgment{fine, done + strings.Join(names, ", "), ""}
}

// tryTime limits the trials of all kinds together. It is much longer than the trials take, and shorter than
// the lease of the sessions that try. So if a waiter gets a lock within this time, a message has woken the
// waiter.
const tryTime = 10 * time.Second

func locksDo(err error) string {
	says := func(word string) bool { return strings.Contains(err.Error(), word) }
	switch {
	case slices.ContainsFunc([]string{"NOPERM", "ACL", "can't run this command", "can't access"}, says):
		return rightsDo + ", or give the --prefix that it has"
	case slices.ContainsFunc([]string{"OOM", "MISCONF", "NOREPLICAS", "READONLY"}, says):
		return "the server refuses writes; see its other findings"
	case errors.Is(err, context.DeadlineExceeded):
		return "no wake-up came in time: see how busy the server is"
	}
	return "see the error"
}

// trySubscribe subscribes to a channel, and returns the error if that fails, for example because the user has
// no right to subscribe. Without this test, the trial would fail only after a long time.
func (o *operator) trySubscribe(ctx context.Context) error {
	channel := o.prefix + ":s:lockline-doctor"
	if o.redisson {
		channel = "redisson_lock__channel:{lockline-doctor}"
	}
	sub := o.rdb.Subscribe(ctx, channel)
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return nil
}

// tryKind takes a lock, re-enters it if locks of its kind can be nested, and hands it over to a waiting
// session.
func (o *operator) tryKind(ctx context.Context, k lockKind, name string) error {
	if err := o.trySubscribe(ctx); err != nil {
		return err
	}
	const lease = 3 * tryTime
	waits := make(signalWaiting, 1)
	first, err := o.newSession(rlock.WithWatchdogTimeout(lease))
	if err != nil {
		return err
	}
	defer closeSession(first)
	second, err := o.newSession(rlock.WithWatchdogTimeout(lease), rlock.WithObserver(waits))
	if err != nil {
		return err
	}
	defer closeSession(second)
	lock := k.open(first, name)
	held, hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }() // frees the lock if the trial returns early
	if lock.nests() {
		_, nested, err := lock.Lock(held)
		if err != nil {
			return err
		}
		if err := nested.Unlock(ctx); err != nil {
			return err
		}
	}
	if _, err := lock.state(held); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		_, hold, err := k.open(second, name).Lock(ctx)
		if err == nil {
			err = hold.Unlock(ctx)
		}
		done <- err
	}()
	select {
	case <-waits:
	case err := <-done:
		return cmp.Or(err, errors.New("two sessions held it at once"))
	}
	if err := hold.Unlock(ctx); err != nil {
		return errors.Join(err, <-done)
	}
	return <-done
}

// sweep deletes the keys of a trial that failed. Without the right to set a lease, the keys would never
// expire. If the user may not delete the keys either, sweep returns an addition to the remedy.
func (o *operator) sweep(k lockKind, name string) (stays string) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	lock := fmt.Sprintf("%s:%s:{%s}", o.prefix, string(k.Kind), name)
	keys := []string{lock, lock + ":q", lock + ":w", lock + ":h"}
	if o.redisson {
		keys = []string{name, "lockline_lock_memory:{" + name + "}"}
	}
	if err := o.rdb.Del(ctx, keys...).Err(); err != nil && strings.Contains(err.Error(), "NOPERM") {
		return "; delete " + keys[0] + ", if it is there: this user may not"
	}
	return ""
}

// signalWaiting is an observer that sends a value when its session begins to wait.
type signalWaiting chan struct{}

func (c signalWaiting) Observe(_ context.Context, e rlock.Event) {
	if e.Type == rlock.EventWaiting {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
