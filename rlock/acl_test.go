package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func setUser(t *testing.T, admin *redis.Client, rules []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "lockline", "reset"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	for _, command := range [][]any{args, {"SCRIPT", "FLUSH"}, {"FLUSHALL"}, {"ACL", "LOG", "RESET"}, {"CONFIG", "RESETSTAT"}} {
		if err := admin.Do(bg, command...).Err(); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
}

// denied are the commands, keys and channels that were refused, but for what go-redis can do without.
func denied(t *testing.T, admin *redis.Client) (objects []string) {
	t.Helper()
	entries, err := admin.ACLLog(bg, 100).Result()
	testlock.Must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client") {
			objects = append(objects, e.Object)
		}
	}
	return objects
}

// everything does all that a program does with a lock. Two sessions share it; liveness is short, so
// that heartbeats are among it.
func everything(ctx context.Context, rdb rlock.Client, newMutex testlock.Maker, name string, options ...rlock.SessionOption) (err error) {
	options = append(options, rlock.WithLogger(testlock.Quiet), rlock.WithLiveness(time.Second))
	waits := make(testlock.Waits, 10)
	one, err := rlock.NewSession(rdb, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, one.Close()) }()
	two, err := rlock.NewSession(rdb, append(options, rlock.WithObserver(waits))...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, two.Close()) }()
	lock, other := newMutex(one, name), newMutex(two, name)

	held, hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	_, nested, err := lock.Lock(held)
	if err != nil {
		return err
	}
	if err := nested.Unlock(ctx); err != nil {
		return err
	}
	if err := hold.Extend(ctx, time.Minute); err != nil {
		return err
	}
	if _, err := lock.Inspect(ctx); err != nil {
		return err
	}
	// One gives up after some heartbeats, and one is woken.
	if _, _, err := other.Lock(ctx, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
		return fmt.Errorf("a wait that ran out: %w", err)
	}
	got := make(chan error, 1)
	for len(waits) > 0 {
		<-waits
	}
	go func() {
		_, hold, err := other.Lock(ctx)
		if err == nil {
			err = hold.Unlock(ctx)
		}
		got <- err
	}()
	select {
	case <-waits:
	case err := <-got:
		return fmt.Errorf("ended before it could: %w", err)
	}
	if err := errors.Join(hold.Unlock(ctx), <-got); err != nil {
		return err
	}

	_, hold, err = lock.Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := other.ForceUnlock(ctx); err != nil {
		return err
	}
	if err := hold.Unlock(ctx); !errors.Is(err, rlock.ErrLost) {
		return fmt.Errorf("the unlock of a lock that was forced open: %w", err)
	}
	_, _, err = lock.Lock(ctx) // for Close to free
	return err
}

// linger keeps a subscription until it is pinged, and another one has been given up. Of kinds with a queue, there is one in all.
func linger(ctx context.Context, rdb rlock.Client, admin *redis.Client) error {
	holder, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
	if err != nil {
		return err
	}
	defer holder.Close()
	waiter, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
	if err != nil {
		return err
	}
	defer waiter.Close()
	for _, name := range []string{"x", "y"} {
		_, hold, err := multilock.NewRedLock(name, holder).Lock(ctx)
		if err != nil {
			return err
		}
		defer hold.Unlock(bg)
	}
	_, _, _ = multilock.NewRedLock("y", waiter).Lock(ctx, rlock.WaitAtMost(50*time.Millisecond))
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _, _, _ = multilock.NewRedLock("x", waiter).Lock(waiting) }()
	defer func() { cancel(); <-ended }()
	for !called(admin, "ping") || !called(admin, "unsubscribe") {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		<-time.After(10 * time.Millisecond)
	}
	return nil
}

func called(admin *redis.Client, command string) bool {
	return strings.Contains(admin.Info(bg, "commandstats").Val(), "cmdstat_"+command+":calls=")
}

// allKinds does everything with every kind of lock.
func allKinds(ctx context.Context, rdb rlock.Client, admin *redis.Client) error {
	// A waiter whose process died a while ago.
	if err := admin.ZAdd(ctx, "lockline:f:{x}:q", redis.Z{Score: 1, Member: "dead:1"}).Err(); err != nil {
		return err
	}
	for kind, newMutex := range testlock.Kinds {
		if err := everything(ctx, rdb, newMutex, "x"); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	if err := severalAtOnce(ctx, rdb); err != nil {
		return fmt.Errorf("several: %w", err)
	}
	return linger(ctx, rdb, admin)
}

// severalAtOnce takes two locks by one request.
func severalAtOnce(ctx context.Context, rdb rlock.Client) error {
	s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
	if err != nil {
		return err
	}
	defer s.Close()
	_, hold, err := multilock.New(rlock.New(s, "a"), rlock.New(s, "b")).Lock(ctx)
	if err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func TestTheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	rules := testlock.DocumentedRights(t)
	rdb := server.Client(t, asLockline)

	setUser(t, admin, rules.Server)
	if err := allKinds(testlock.Bounded(t), rdb, admin); err != nil {
		t.Error(err)
	}
	if refused := denied(t, admin); refused != nil {
		t.Errorf("refused: %q", refused)
	}

	setUser(t, admin, slices.Concat(rules.Server, rules.Redisson))
	if err := everything(testlock.Bounded(t), rdb, rlock.New, "orders:1", rlock.RedissonKeys()); err != nil {
		t.Errorf("with Redisson's keys: %v", err)
	}
	if refused := denied(t, admin); refused != nil {
		t.Errorf("with Redisson's keys: refused: %q", refused)
	}
}

func asLockline(o *redis.Options) { o.Username, o.Password = "lockline", "PASSWORD" }

func TestNoneOfTheDocumentedRightsCanBeLeftOut(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	rules := testlock.DocumentedRights(t)
	leaveOut := func(rules []string, without string, try func(ctx context.Context, rdb *redis.Client) error) {
		rest := slices.DeleteFunc(slices.Clone(rules), func(rule string) bool { return rule == without })
		setUser(t, admin, rest)
		ctx, cancel := context.WithTimeout(bg, testlock.Patience)
		done := make(chan error, 1)
		go func() { done <- try(ctx, server.Client(t, asLockline)) }()
		var err error
		running := true
		for ended := done; denied(t, admin) == nil && running; {
			select {
			case err = <-ended:
				running = false
			case <-time.After(5 * time.Millisecond):
			}
		}
		cancel()
		if running {
			err = <-done
		}
		refused := denied(t, admin)
		name, isCommand := strings.CutPrefix(without, "+")
		command, _, _ := strings.Cut(name, "|") // all that Redis 6.2 logs
		if refused == nil || isCommand && !slices.Contains(refused, name) && !slices.Contains(refused, command) {
			t.Errorf("without %s: refused %q, %v", without, refused, err)
		}
	}
	for _, rule := range rules.Server {
		if strings.ContainsAny(rule[:1], "+~&") {
			leaveOut(rules.Server, rule, func(ctx context.Context, rdb *redis.Client) error { return allKinds(ctx, rdb, admin) })
		}
	}
	for _, rule := range rules.Redisson {
		leaveOut(slices.Concat(rules.Server, rules.Redisson), rule, func(ctx context.Context, rdb *redis.Client) error {
			return everything(ctx, rdb, rlock.New, "orders:1", rlock.RedissonKeys())
		})
	}
}

func TestTheDocumentedRightsForReplicas(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.StartReplica(t)
	admin := server.Client(t)
	rules := testlock.DocumentedRights(t)
	try := func() error {
		return everything(testlock.Bounded(t), server.Client(t, asLockline), fairlock.New, "x", rlock.WithReplicas(1, confirmed))
	}
	setUser(t, admin, slices.Concat(rules.Server, rules.Replicas))
	if err := try(); err != nil {
		t.Error(err)
	}
	if refused := denied(t, admin); refused != nil {
		t.Errorf("refused: %q", refused)
	}
	setUser(t, admin, rules.Server)
	if err := try(); err == nil || !slices.Equal(rules.Replicas, []string{"+wait"}) || !slices.Equal(denied(t, admin), []string{"wait"}) {
		t.Errorf("without %s: refused %q, %v", rules.Replicas, denied(t, admin), err)
	}
}

func TestTheDocumentedRightsOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 2, 0)
	rules := testlock.DocumentedRights(t)
	set := func(rules []string) {
		for _, node := range cluster.Nodes {
			setUser(t, node.Client(t), rules)
		}
	}
	refused := func() (all []string) {
		for _, node := range cluster.Nodes {
			all = append(all, denied(t, node.Client(t))...)
		}
		return all
	}
	try := func() error { // what one server needs, the other tests show
		rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "lockline", "PASSWORD" })
		if err := everything(testlock.Bounded(t), rdb, rlock.New, "x"); err != nil {
			return err
		}
		_, hold, err := rlock.New(testlock.NewSession(t, rdb), "x").Lock(testlock.Bounded(t))
		if err != nil {
			return err
		}
		const key = "lockline:r:{x}"
		to := cluster.Nodes[1-slices.Index(cluster.Nodes, cluster.Master(t, key))]
		cluster.MoveSlot(t, key, to, func() { err = hold.Unlock(testlock.Bounded(t)) })
		return err
	}
	needed, more := slices.Concat(rules.Server, rules.Cluster), []string(nil)
	if cluster.Sharded() {
		more = rules.Sharded
	}
	set(slices.Concat(needed, more))
	if err := try(); err != nil {
		t.Error(err)
	}
	if refused := refused(); refused != nil {
		t.Errorf("refused: %q", refused)
	}
	for _, more := range [][]string{nil, more} {
		possible := more != nil
		set(slices.Concat(needed, more, rules.Redisson))
		rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "lockline", "PASSWORD" })
		if err := everything(testlock.Bounded(t), rdb, rlock.New, "orders:1", rlock.RedissonKeys()); err != nil {
			t.Errorf("with Redisson's keys, sharded %v: %v", possible, err)
		}
		if refused := refused(); refused != nil {
			t.Errorf("with Redisson's keys, sharded %v: refused: %q", possible, refused)
		}
		used := slices.ContainsFunc(cluster.Nodes, func(node *testredis.Server) bool { return called(node.Client(t), "spublish") })
		if used != possible {
			t.Errorf("with Redisson's keys, sharded %v: SPUBLISH was used: %v", possible, used)
		}
	}
	// leaveOut gives all rights but one, and reports what try says and what was refused.
	leaveOut := func(rule string, try func() error) (refusal bool, err error) {
		set(slices.DeleteFunc(slices.Concat(needed, more), func(r string) bool { return r == rule }))
		err = try()
		name := strings.TrimPrefix(rule, "+")
		command, _, _ := strings.Cut(name, "|") // all that Redis 6.2 logs
		refused := refused()
		return slices.Contains(refused, name) || slices.Contains(refused, command), err
	}
	for _, rule := range rules.Cluster {
		if refused, err := leaveOut(rule, try); !refused {
			t.Errorf("without %s, it was not refused; %v", rule, err)
		}
	}
	for _, rule := range more {
		rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "lockline", "PASSWORD" })
		wait := time.Second
		if rule == "+sunsubscribe" {
			wait = 8 * time.Second // of that it has need later
		}
		sharded := func() error { return shardedWaits(testlock.Bounded(t), rdb, wait) }
		if refused, err := leaveOut(rule, sharded); !refused || err != nil {
			t.Errorf("without %s: refused: %v; %v", rule, refused, err)
		}
	}
}

// shardedWaits has a session give up the wait for one lock, and wait for another one in the same slot for so long.
func shardedWaits(ctx context.Context, rdb rlock.Client, wait time.Duration) (err error) {
	var sessions []*rlock.Session
	for range 2 {
		s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
		if err != nil {
			return err
		}
		defer s.Close()
		sessions = append(sessions, s)
	}
	_, first, err := rlock.New(sessions[0], "x").Lock(ctx)
	if err != nil {
		return err
	}
	defer first.Unlock(bg)
	_, second, err := fairlock.New(sessions[0], "x").Lock(ctx)
	if err != nil {
		return err
	}
	if _, _, err := rlock.New(sessions[1], "x").Lock(ctx, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
		return fmt.Errorf("a wait that ran out: %w", err)
	}
	if _, _, err := fairlock.New(sessions[1], "x").Lock(ctx, rlock.WaitAtMost(wait)); !errors.Is(err, rlock.ErrLocked) {
		return fmt.Errorf("a wait that ran out: %w", err)
	}
	return second.Unlock(ctx)
}
