//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestDoctorFindsLittleMemoryForClients(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	if server.Client(t).ConfigSet(t.Context(), "maxmemory-clients", "1mb").Err() != nil {
		examine(t, "redis://"+server.Addr, time.Now).want(t, "client memory", fine, "no maxmemory-clients")
		return
	}
	examine(t, "redis://"+server.Addr, time.Now).
		want(t, "client memory", warning, "maxmemory-clients 1048576")
	testlock.Must(t, server.Client(t).ConfigSet(t.Context(), "maxmemory-clients", "100mb").Err())
	examine(t, "redis://"+server.Addr, time.Now).want(t, "client memory", fine, "")
}

func TestDoctorFindsAMasterThatNeedsReplicasOnlyByName(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t, "--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1",
		"--min-replicas-max-lag", "0")
	master.StartReplica(t)
	rdb := master.Client(t)
	testlock.Eventually(t, "the master has the first answer of the replica", func() bool {
		return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "state=online")
	})
	examine(t, "redis://"+master.Addr, time.Now).want(t, "replication", warning, "min-replicas-max-lag 0")
}

func TestDoctorComparesTheTimeoutOfAClusterWithTheLease(t *testing.T) {
	t.Parallel()
	node := testredis.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "9000",
		"--cluster-require-full-coverage", "no")
	rdb := node.Client(t)
	testlock.Must(t, rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	testlock.Eventually(t, "the Cluster is up", func() bool {
		return strings.Contains(rdb.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	examine(t, "redis://"+node.Addr, time.Now).want(t, "cluster", fine, "")
	for lease, want := range map[string]string{"14s": "ok", "13s": "warning"} {
		out, errOut, _ := operate(t, node.Addr, "doctor", "--lease", lease)
		if !strings.Contains(out, fmt.Sprintf("  %-8s %-13s a master of a Cluster", want, "cluster")) {
			t.Errorf("lease %s: %s%s", lease, out, errOut)
		}
	}
	// The default cluster-node-timeout of Redis, 15 s, is too long for the default lease, which is 15 s, too.
	for timeout, want := range map[string]status{"15000": warning, "5000": fine} {
		testlock.Must(t, rdb.ConfigSet(t.Context(), "cluster-node-timeout", timeout).Err())
		found := map[status]string{warning: "cluster-node-timeout 15000", fine: "a master of a Cluster"}[want]
		examine(t, "redis://"+node.Addr, time.Now).want(t, "cluster", want, found)
	}
}

func TestDoctorFindsAClockThatRunsAtAnotherRate(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	begun := time.Now()
	for percent, want := range map[int]status{0: fine, 10: warning, -10: warning} {
		now := func() time.Time {
			passed := time.Since(begun)
			return begun.Add(passed + passed*time.Duration(percent)/100)
		}
		sign := map[int]string{0: "", 10: "by -", -10: "by +"}[percent]
		examine(t, "redis://"+server.Addr, now).want(t, "pace", want, sign)
	}
}

func TestDoctorLooksAtTheServersOfARedLockTogether(t *testing.T) {
	t.Parallel()
	durable := []string{"--appendonly", "yes", "--appendfsync", "always"}
	a, b := testredis.Start(t, durable...), testredis.Start(t, durable...)
	c := testredis.Start(t)
	replica := a.StartReplica(t, durable...)
	doctor := func(code int, servers ...string) examination {
		t.Helper()
		var also []string
		for _, s := range servers[1:] {
			also = append(also, "--also", "redis://"+s)
		}
		out, errOut, got := operate(t, servers[0], append([]string{"doctor", "--json"}, also...)...)
		if got != code {
			t.Errorf("%q: exit code %d: %s", servers, got, errOut)
		}
		return decoded[examination](t, out)
	}
	doctor(exitOK, a.Addr, b.Addr).want(t, "number", warning, "2 servers")
	doctor(exitOK, a.Addr, b.Addr).want(t, "independent", fine, "2 servers")
	three := doctor(exitOK, a.Addr, b.Addr, c.Addr)
	three.want(t, "durability", warning, "not always: "+c.Addr)
	for _, f := range three {
		if f.Check == "number" || f.Server == "" {
			t.Errorf("%+v", f)
		}
	}
	doctor(exitWrong, a.Addr, b.Addr, strings.Replace(a.Addr, "127.0.0.1", "localhost", 1)).
		want(t, "independent", failure, "are the same server")
	doctor(exitWrong, a.Addr, b.Addr, replica.Addr).
		want(t, "independent", failure, replica.Addr+": a replica")
	_, errOut, code := operate(t, a.Addr, "doctor", "--also", "nonsense")
	if code != exitTrouble || !strings.Contains(errOut, "--also is not a Redis URL") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	b.Kill()
	doctor(exitWrong, a.Addr, b.Addr, c.Addr).want(t, "reach", failure, "connection refused")
	doctor(exitWrong, a.Addr, b.Addr, c.Addr).want(t, "majority", warning, "2 of 3 servers answer")
	c.Kill()
	doctor(exitWrong, a.Addr, b.Addr, c.Addr).want(t, "majority", failure, "1 of 3 servers answer")
}

func TestDoctorFindsARedisThatWasEmptied(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	url := "redis://" + server.Addr
	testlock.Eventually(t, "the server has run for a second", func() bool {
		return !strings.Contains(server.Client(t).Info(t.Context(), "server").Val(), "uptime_in_seconds:0")
	})
	examine(t, url, time.Now).want(t, "emptied", fine, "FLUSHALL was run 0 times and FLUSHDB 0 times")
	examine(t, url, time.Now).want(t, "reach", fine, ", up for ")
	testlock.Must(t, server.Client(t).FlushAll(t.Context()).Err())
	examine(t, url, time.Now).want(t, "emptied", warning, "FLUSHALL was run 1 times")
	testlock.Must(t, server.Client(t).ConfigResetStat(t.Context()).Err())
	examine(t, url, time.Now).want(t, "emptied", fine, "")
	testlock.Must(t, server.Client(t).FlushDB(t.Context()).Err())
	examine(t, url, time.Now).want(t, "emptied", warning, "FLUSHDB 1 times")
}
