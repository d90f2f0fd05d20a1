//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// An examination has all findings of one run of the doctor.
type examination []finding

func examine(t *testing.T, url string, now func() time.Time) examination {
	t.Helper()
	o := &operator{prefix: "lockline", kinds: lockKinds, at: target{URL: url}}
	testlock.Must(t, o.open(t.Context(), o.at))
	defer o.close()
	return o.examine(t.Context(), now)
}

// want fails the test unless a finding of this check has status s, and found is in its text. Unless s is
// fine, this finding must have advice. Each finding that is not fine must lead to a heading of the
// documentation.
func (e examination) want(t *testing.T, check string, s status, found string) {
	t.Helper()
	i := slices.IndexFunc(e, func(f finding) bool {
		return f.Check == check && f.Status == s && strings.Contains(f.Found, found)
	})
	switch {
	case i < 0:
		t.Errorf("no finding %q, %q with %q in %+v", check, s, found, e)
	case s != fine && e[i].Do == "":
		t.Errorf("no advice with %+v", e[i])
	}
	for _, f := range e {
		if f.Status != fine && !leads(t, f.See) {
			t.Errorf("no symptom for %+v", f)
		}
	}
}

// leads reports whether see, which is a page and an anchor, names a heading of the documentation.
func leads(t *testing.T, see string) bool {
	t.Helper()
	name, anchor, _ := strings.Cut(see, "#")
	page, err := os.ReadFile(filepath.Join("..", "..", name))
	testlock.Must(t, err)
	for line := range strings.Lines(string(page)) {
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		if strings.HasPrefix(line, "#") && anchor == strings.NewReplacer(" ", "-", ":", "").Replace(heading) {
			return true
		}
	}
	return false
}

func TestEachCheckLeadsToASymptom(t *testing.T) {
	t.Parallel()
	for check := range symptoms {
		if f := (finding{Check: check, judgment: judgment{Status: warning}}); !leads(t, f.symptom()) {
			t.Errorf("%s: %s", check, f.symptom())
		}
	}
	for _, c := range checks {
		if symptoms[c.name] == "" {
			t.Errorf("no symptom for %s", c.name)
		}
	}
}

func TestDoctorFindsWhatIsConfiguredBadly(t *testing.T) {
	t.Parallel()
	const buffers = "--client-output-buffer-limit pubsub "
	for name, test := range map[string]struct {
		args   string
		check  string
		status status
		found  string
		locks  status // status of the check "locks"; "" means that it is not checked
	}{
		"no persistence": {"", "persistence", warning, "none", fine},
		"snapshots only": {"--save 900 1", "persistence", warning, "snapshots only", fine},
		"no fsync": {"--appendonly yes --appendfsync no",
			"persistence", warning, "appendfsync no", fine},
		"append-only file": {"--appendonly yes", "persistence", fine, "everysec", fine},
		"no fsync during rewrites": {"--appendonly yes --no-appendfsync-on-rewrite yes",
			"persistence", warning, "no-appendfsync-on-rewrite yes", fine},
		"eviction": {"--maxmemory-policy volatile-lru --maxmemory 100mb",
			"eviction", failure, "volatile-lru", fine},
		"eviction some day":   {"--maxmemory-policy allkeys-lfu", "eviction", warning, "allkeys-lfu", fine},
		"no eviction":         {"--maxmemory 100mb", "eviction", fine, "noeviction", fine},
		"memory":              {"--maxmemory 700kb", "memory", warning, "of 700 kB", failure},
		"replicas missing":    {"--min-replicas-to-write 1", "replication", failure, "0 replicas", failure},
		"no replicas":         {"", "replication", fine, "no replica", fine},
		"small buffers":       {buffers + "1024 0 0", "pubsub", warning, "1024 0 0", fine},
		"small soft buffers":  {buffers + "0 1024 60", "pubsub", warning, "0 1024 60", fine},
		"boundless buffers":   {buffers + "0 0 0", "pubsub", warning, "0 0 0", fine},
		"usual buffers":       {"", "pubsub", fine, "33554432 8388608 60", fine},
		"version":             {"", "version", fine, "", fine},
		"one server":          {"", "cluster", fine, "not a Cluster", fine},
		"a Cluster, no slots": {"--cluster-enabled yes", "reach", failure, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := examine(t, "redis://"+testredis.Start(t, strings.Fields(test.args)...).Addr, time.Now)
			e.want(t, test.check, test.status, test.found)
			if test.locks != "" {
				e.want(t, "locks", test.locks, "")
			}
		})
	}
}

func TestDoctorFindsASnapshotThatFailed(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--save", "900", "1")
	rdb := server.Client(t)
	dir := rdb.ConfigGet(t.Context(), "dir").Val()["dir"]
	// A folder with the name of the snapshot makes the snapshot fail.
	if err := os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700); err != nil {
		t.Fatal(err)
	}
	testlock.Must(t, rdb.BgSave(t.Context()).Err())
	testlock.Eventually(t, "failed", func() bool {
		return strings.Contains(rdb.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	e := examine(t, "redis://"+server.Addr, time.Now)
	e.want(t, "persistence", failure, "snapshot failed")
	e.want(t, "locks", failure, "MISCONF")
}

func TestDoctorKnowsMastersFromReplicas(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(master.Addr, ":")
	replica := testredis.Start(t, "--replicaof", host, port)
	testlock.Eventually(t, "in sync", func() bool {
		return strings.Contains(master.Client(t).Info(t.Context(), "replication").Val(), "state=online")
	})
	e := examine(t, "redis://"+master.Addr, time.Now)
	e.want(t, "replication", warning, "1 replicas, min-replicas-to-write 0")
	i := slices.IndexFunc(e, func(f finding) bool { return f.Check == "replication" })
	if !strings.Contains(e[i].Do, "have two replicas") {
		t.Errorf("the advice hides what one replica costs: %s", e[i].Do)
	}
	testlock.Must(t, master.Client(t).ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	examine(t, "redis://"+master.Addr, time.Now).want(t, "replication", fine,
		"1 replicas, min-replicas-to-write 1")

	e = examine(t, "redis://"+replica.Addr, time.Now)
	e.want(t, "replication", failure, "replica of "+master.Addr)
	e.want(t, "locks", failure, "READONLY")
}

func TestDoctorFindsClocksThatDiffer(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	const much = time.Hour + time.Minute
	for off, want := range map[time.Duration]status{0: fine, much: warning, -much: warning} {
		e := examine(t, "redis://"+server.Addr, func() time.Time { return time.Now().Add(off) })
		sign := map[bool]string{true: "-1h", false: ""}[off > 0]
		e.want(t, "clock", want, "ahead of this machine's by "+sign)
	}
}

func TestDoctorFindsAServerThatIsDown(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Kill()
	out, _, code := operate(t, server.Addr, "doctor")
	if code != exitWrong || !strings.HasPrefix(out, server.Addr+"\n") ||
		!strings.Contains(out, "failure  reach") || strings.Contains(out, "unknown") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestDoctorFindsMissingRights(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	for name, test := range map[string]struct {
		rules  string
		check  string
		status status
		found  string
		also   func(t *testing.T, e examination)
	}{
		"none but the locks'": {"+@all -info -config -cluster", "locks", fine, "",
			func(t *testing.T, e examination) {
				e.want(t, "version", unknown, "INFO")
				e.want(t, "pubsub", unknown, "")
			}},
		"no CONFIG":    {"+@all -config", "persistence", unknown, "", nil},
		"no scripts":   {"+@all -evalsha", "locks", failure, "evalsha", nil},
		"no SUBSCRIBE": {"+@all -subscribe", "locks", failure, "subscribe", nil},
		"no channels":  {"+@all resetchannels &other:*", "locks", failure, "subscribe", nil},
		"no PUBLISH":   {"+@all -publish", "locks", failure, "reentrant", nil},
		"other keys":   {"+@all resetkeys ~other:*", "locks", failure, "reentrant", nil},
		"no queues":    {"+@all -zadd", "locks", failure, "reentrant", nil},
		"no PEXPIRE": {"+@all -pexpire", "locks", failure, "reentrant", func(t *testing.T, _ examination) {
			for key := range keys(t, admin) {
				if !expiresFree(t, admin, key) {
					t.Errorf("left: %q", key)
				}
			}
		}},
		"no DEL": {"+@all -pexpire -del", "locks", failure, "reentrant", func(t *testing.T, e examination) {
			for key := range keys(t, admin) {
				if !expiresFree(t, admin, key) && strings.HasSuffix(key, "}") &&
					!strings.Contains(e[len(e)-1].Do, "delete "+key+",") {
					t.Errorf("left: %q, and no word of it: %+v", key, e)
				}
				testlock.Must(t, admin.Del(t.Context(), key).Err())
			}
		}},
		"no TIME": {"+@all -time", "reach", failure, "NOPERM", nil},
	} {
		t.Run(name, func(t *testing.T) {
			rules := []any{"ACL", "SETUSER", "tester", "reset", "on", ">secret", "~*", "&*"}
			rules = append(rules, anys(strings.Fields(test.rules))...)
			testlock.Must(t, admin.Do(t.Context(), rules...).Err())
			e := examine(t, "redis://tester:secret@"+server.Addr, time.Now)
			e.want(t, test.check, test.status, test.found)
			if test.also != nil {
				test.also(t, e)
			}
			for _, f := range e {
				if f.Status == failure && !strings.Contains(f.Do, "docs/operations.md") || f.Found == "" {
					t.Errorf("advice: %q", f.Do)
				}
			}
		})
	}
	examine(t, "redis://tester:wrong@"+server.Addr, time.Now).want(t, "reach", failure, "WRONGPASS")
}

func TestDoctorLeavesNothing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	examination(operateJSON[[]finding](t, server.Addr, "doctor")).want(t, "locks", fine, "reentrant, fair")
	rdb := server.Client(t)
	for key := range keys(t, rdb) { // metadata of a lock may stay, but must expire
		if ttl := rdb.TTL(t.Context(), key).Val(); !expiresFree(t, rdb, key) || ttl > 3*time.Minute {
			t.Errorf("left: %q, for %v", key, ttl)
		}
	}
}

// expiresFree reports whether a key expires and is the hash of a lock that names no owner and no queue.
func expiresFree(t *testing.T, rdb *redis.Client, key string) bool {
	t.Helper()
	if rdb.TTL(t.Context(), key).Val() <= 0 {
		return false
	}
	lock := rdb.HGetAll(t.Context(), key).Val()
	return lock["lives"] != "" && lock["owner"] == "" && lock["queued"] == ""
}

func keys(t *testing.T, rdb *redis.Client) map[string]bool {
	found := map[string]bool{}
	for i := rdb.Scan(context.Background(), 0, "*", 100).Iterator(); i.Next(t.Context()); {
		found[i.Val()] = true
	}
	return found
}

func (p *pane) keys(keys ...string) {
	p.t.Helper()
	p.run(append([]string{"send-keys"}, keys...)...)
}
