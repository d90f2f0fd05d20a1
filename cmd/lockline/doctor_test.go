package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestDoctorJudgesWhatServersRarelyAre(t *testing.T) {
	for name, test := range map[string]struct {
		check func(facts) judgment
		info  map[string]string
		want  status
	}{
		"Redis 5":   {checkVersion, map[string]string{"redis_version": "5.0.14"}, failure},
		"Redis 6.0": {checkVersion, map[string]string{"redis_version": "6.0.20"}, failure},
		"Redis 6.2": {checkVersion, map[string]string{"redis_version": "6.2.14"}, fine},
		"Redis 8.0": {checkVersion, map[string]string{"redis_version": "8.0.2"}, fine},
		"Valkey": {checkVersion,
			map[string]string{"redis_version": "7.2.4", "valkey_version": "8.1.0"}, fine},
		"Cluster, unasked": {checkCluster, map[string]string{"cluster_enabled": "1"}, unknown},
		"append-only file": {checkPersistence,
			map[string]string{"aof_enabled": "1", "aof_last_write_status": "err"}, failure},
		"a replica that syncs": {checkReplication, map[string]string{"role": "master",
			"connected_slaves": "1", "slave0": "ip=a,port=1,state=wait_bgsave,offset=0,lag=0"}, warning},
		"a replica that lags": {checkReplication, map[string]string{"role": "master",
			"connected_slaves": "1", "slave0": "ip=a,port=1,state=online,offset=0,lag=11"}, warning},
	} {
		if got := test.check(facts{info: test.info}); got.Status != test.want ||
			got.Status != fine && got.Do == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDoctorJudgesSettings(t *testing.T) {
	const pubsub = "client-output-buffer-limit"
	is := func(name string) func(value string) map[string]string {
		return func(value string) map[string]string { return map[string]string{name: value} }
	}
	needed, nine := is("min-replicas-to-write"), map[string]string{"connected_slaves": "9"}
	for i := range 9 {
		nine[fmt.Sprint("slave", i)] = "state=online,lag=0"
	}
	connected, most, limit := is("connected_clients"), is("maxclients"), is("lua-time-limit")
	cluster := map[string]string{"cluster_enabled": "1", "cluster_state": "ok"}
	coverage := func(full string) map[string]string {
		return map[string]string{"cluster-node-timeout": "1", "cluster-require-full-coverage": full}
	}
	aof, fsync := map[string]string{"aof_enabled": "1"}, is("appendfsync")
	both := map[string]string{"connected_clients": "20", "maxclients": "10000"}
	for name, test := range map[string]struct {
		check        func(facts) judgment
		info, config map[string]string
		want         status
		do           string
	}{
		"hard limit": {checkPubSub, nil, map[string]string{pubsub: "pubsub 1000 0 0"}, warning,
			"raise its hard limit"},
		"soft limit": {checkPubSub, nil, map[string]string{pubsub: "pubsub 33554432 1000 60"},
			warning, "raise its soft limit"},
		"both limits": {checkPubSub, nil, map[string]string{pubsub: "pubsub 2000 1000 60"}, warning,
			"raise its hard and its soft limit"},
		"one slot stops all": {checkCluster, cluster, coverage("yes"), warning, "full-coverage no"},
		"slots fail alone":   {checkCluster, cluster, coverage("no"), fine, ""},
		"Cluster, unasked":   {checkCluster, cluster, nil, unknown, "administrator"},
		"coverage, unasked": {checkCluster, cluster, is("cluster-node-timeout")("1"), unknown,
			"administrator"},
		"file, unasked":       {checkPersistence, aof, nil, unknown, "administrator"},
		"file, synced":        {checkPersistence, aof, fsync("always"), fine, ""},
		"clients":             {checkClients, connected("20"), most("10000"), fine, ""},
		"clients of INFO":     {checkClients, both, nil, fine, ""},
		"many clients":        {checkClients, connected("95"), most("100"), warning, "maxclients"},
		"maxclients, unasked": {checkClients, connected("20"), nil, unknown, "administrator"},
		"few clients":         {checkClients, connected("2"), most("20"), warning, "one process"},
		"usual scripts":       {checkScripts, nil, limit("5000"), fine, ""},
		"unbounded scripts":   {checkScripts, nil, limit("0"), fine, ""},
		"short scripts":       {checkScripts, nil, limit("100"), warning, "set lua-time-limit"},
		"scripts, unasked":    {checkScripts, nil, nil, unknown, "administrator"},
		"enough replicas":     {checkReplication, nine, needed("1"), fine, ""},
		"too few replicas":    {checkReplication, nine, needed("10"), failure, "bring the replicas"},
		"pubsub, unasked":     {checkPubSub, nil, nil, unknown, "administrator"},
	} {
		got := test.check(facts{info: test.info, config: test.config, lease: time.Minute})
		if got.Status != test.want || !strings.Contains(got.Do, test.do) || got.Found == "" ||
			got.Status == fine && got.Do != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDoctorSaysOnceWhoMayAskMore(t *testing.T) {
	var out strings.Builder
	printFindings(&out,
		[]finding{{judgment: unasked("", "save")}, {judgment: unasked("", "maxclients")},
			{judgment: judgment{Status: fine}}, {judgment: unasked("", "x")}})
	if n := strings.Count(out.String(), adminDo); n != 1 {
		t.Errorf("%d times:\n%s", n, &out)
	}
}
