package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// checks lists the checks that the doctor makes for each server.
var checks = []struct {
	name  string
	info  bool // the check needs INFO
	judge func(facts) judgment
}{
	{"reach", false, checkReach}, {"version", true, checkVersion}, {"cluster", true, checkCluster},
	{"eviction", true, checkEviction}, {"emptied", true, checkEmptied}, {"memory", true, checkMemory},
	{"persistence", true, checkPersistence},
	{"replication", false, checkReplication}, {"clock", false, checkClock}, {"pubsub", false, checkPubSub},
	{"clients", true, checkClients}, {"client memory", true, checkClientMemory},
	{"scripts", false, checkScripts},
}

const adminDo = "run the doctor as an administrator, too"
const rightsDo = "give this user the rights that docs/operations.md lists"

const passwordDo = "put the right user and password into the URL or its file: " +
	"ACL GETUSER, sent by an administrator, shows whether that user is on"

const refusedDo = "Redis answers, and refuses requests: the page has a remedy for each error"

// unreached returns the judgment about a server that does not answer or refuses requests. err is the error of
// a request to the server.
func unreached(err error) judgment {
	switch text := err.Error(); {
	case strings.Contains(text, "NOPERM"):
		return judgment{failure, say(err), rightsDo}
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"):
		return judgment{failure, say(err), passwordDo}
	case refused(err) && !strings.Contains(text, "max number of clients"):
		return judgment{failure, say(err), refusedDo}
	}
	return judgment{failure, say(err), "check that Redis runs, that host, port, TLS (rediss://), user and " +
		"password of --redis are right, and that maxclients is not reached; on a Cluster, that it has slots"}
}

func checkReach(f facts) judgment {
	if f.err != nil {
		return unreached(f.err)
	}
	found := fmt.Sprintf("answers in %v", f.rtt.Round(10*time.Microsecond))
	if up := f.number("uptime_in_seconds"); up > 0 {
		found += fmt.Sprintf(", up for %v", time.Duration(up)*time.Second)
	}
	return judgment{fine, found, ""}
}

// checkEmptied warns if FLUSHALL or FLUSHDB was run, because these commands delete all locks.
func checkEmptied(f facts) judgment {
	if f.calls == nil {
		return judgment{unknown, "this user may not ask INFO COMMANDSTATS", adminDo}
	}
	found := fmt.Sprintf("FLUSHALL was run %d times and FLUSHDB %d times since the start",
		f.calls["flushall"], f.calls["flushdb"])
	if f.calls["flushall"]+f.calls["flushdb"] > 0 {
		return judgment{warning, found, "find out who does that, and forbid it (ACL SETUSER NAME -flushall " +
			"-flushdb): it makes Redis forget all locks, so others get locks that are still held. " +
			"CONFIG RESETSTAT sets these numbers to 0"}
	}
	return judgment{fine, found, ""}
}

// callsOf returns the number of runs of each command, by the name of the command. stats is the section
// COMMANDSTATS of INFO.
func callsOf(stats map[string]string) map[string]int64 {
	calls := map[string]int64{}
	for name, text := range stats { // an entry is cmdstat_NAME:calls=NUMBER,usec=...
		name, found := strings.CutPrefix(name, "cmdstat_")
		number, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		if n, err := strconv.ParseInt(number, 10, 64); found && err == nil {
			calls[name] = n
		}
	}
	return calls
}

// unasked returns the judgment of a check whose setting the user may not read. known is a text about the
// facts that are known without the setting.
func unasked(known, setting string) judgment {
	return judgment{unknown, known + "this user may not ask CONFIG for " + setting, adminDo}
}

func checkVersion(f facts) judgment {
	found, version := "Redis ", f.info["redis_version"]
	if v := f.info["valkey_version"]; v != "" {
		found, version = "Valkey ", v
	}
	found += version
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	if n == 2 && (major < 6 || major == 6 && minor < 2) {
		return judgment{failure, found, "use Redis 6.2 or newer, or Valkey: nothing older is tested"}
	}
	return judgment{fine, found, ""}
}

func checkCluster(f facts) judgment {
	state, known := f.info["cluster_state"]
	found := "a master of a Cluster whose state is " + state
	switch {
	case f.info["cluster_enabled"] != "1":
		return judgment{fine, "not a Cluster", ""}
	case !known:
		return judgment{unknown, "this user may not ask CLUSTER INFO", adminDo}
	case state != "ok":
		return judgment{failure, found, "see CLUSTER NODES: locks in slots without a master cannot be taken"}
	}
	if ms, err := strconv.Atoi(f.config["cluster-node-timeout"]); err == nil {
		says := judgeOutage("cluster-node-timeout", time.Duration(ms)*time.Millisecond, f.lease,
			"set cluster-node-timeout 5000 on each node")
		if says.Found = found + "; " + says.Found; says.Status != fine {
			return says
		}
		found = says.Found
	}
	if f.config["cluster-require-full-coverage"] == "yes" {
		return judgment{warning, found + "; cluster-require-full-coverage yes",
			"set cluster-require-full-coverage no on each node: " +
				"otherwise one slot without a master stops all nodes, and all locks are lost"}
	}
	for _, setting := range []string{"cluster-node-timeout", "cluster-require-full-coverage"} {
		if _, known := f.config[setting]; !known {
			return unasked(found+"; ", setting)
		}
	}
	return judgment{fine, found, ""}
}

func checkEviction(f facts) judgment {
	policy, limit := f.info["maxmemory_policy"], f.number("maxmemory")
	found := fmt.Sprintf("maxmemory-policy %s, maxmemory %s, %d keys evicted since the start",
		policy, size(limit), f.number("evicted_keys"))
	switch {
	case policy == "noeviction":
		return judgment{fine, found, ""}
	case limit == 0:
		return judgment{warning, found, "set maxmemory-policy noeviction before an operator sets " +
			"maxmemory: every other policy can drop a lock"}
	}
	return judgment{failure, found, "set maxmemory-policy noeviction, because the present policy drops " +
		"locks when memory is short; or keep locks on a server without a cache"}
}

func checkMemory(f facts) judgment {
	used, limit := f.number("used_memory"), f.number("maxmemory")
	found := fmt.Sprintf("%s used of %s", size(used), size(limit))
	if limit > 0 && used > limit/10*9 {
		return judgment{warning, found, "raise maxmemory, or remove data: when memory is full, held locks " +
			"can be renewed, freed and handed over to waiters, but new locks are refused"}
	}
	return judgment{fine, found, ""}
}

// size returns a number of bytes as a text for people. Zero means that there is no limit.
func size(bytes int64) string {
	switch {
	case bytes == 0:
		return "no limit"
	case bytes < 10<<20:
		return fmt.Sprintf("%d kB", bytes>>10)
	}
	return fmt.Sprintf("%d MB", bytes>>20)
}

func checkPersistence(f facts) judgment {
	save, known := f.config["save"]
	stop, fsync := f.config["stop-writes-on-bgsave-error"], f.config["appendfsync"]
	aof := f.info["aof_enabled"] == "1"
	switch {
	case aof && f.info["aof_last_write_status"] == "err":
		return judgment{failure, "the append-only file cannot be written",
			"see the server's log, and its disk: the server refuses writes until the file can be written"}
	case f.info["rdb_last_bgsave_status"] == "err" && stop != "no" && save != "":
		return judgment{failure, "the last snapshot failed",
			"see the server's log, and its disk: the server refuses writes until a snapshot succeeds"}
	case aof && fsync == "":
		return unasked("append-only file; ", "appendfsync")
	case aof && fsync != "no" && f.config["no-appendfsync-on-rewrite"] == "yes":
		return judgment{warning, "append-only file, appendfsync " + fsync + ", no-appendfsync-on-rewrite yes",
			"set no-appendfsync-on-rewrite no: a crash of the machine during a rewrite of the file loses " +
				"all that the kernel had not written, up to half a minute of locks"}
	case aof && fsync == "no":
		return judgment{warning, "append-only file, appendfsync no", "set appendfsync everysec: " +
			"a crash of the machine loses what the kernel had not written, up to half a minute of locks"}
	case aof && fsync == "everysec":
		return judgment{fine, "append-only file, appendfsync everysec: " +
			"a crash of the machine loses the last second", ""}
	case aof:
		return judgment{fine, "append-only file, appendfsync " + fsync, ""}
	case !known:
		return unasked("no append-only file; ", "save")
	case save != "":
		return judgment{warning, "snapshots only (save " + save + ")",
			"set appendonly yes: a restart forgets the locks that were taken since the last snapshot"}
	}
	return judgment{warning, "none", "set appendonly yes and appendfsync everysec: " +
		"after a restart, all locks are forgotten, so others get locks that are still held"}
}

func checkReplication(f facts) judgment {
	replicas := f.number("connected_slaves")
	least, known := f.config["min-replicas-to-write"]
	needed, _ := strconv.ParseInt(least, 10, 64)
	found := fmt.Sprintf("%d replicas, min-replicas-to-write %s", replicas, least)
	switch {
	case f.replica || f.info["role"] == "slave":
		found := "this is a replica"
		if f.info != nil {
			found += " of " + f.info["master_host"] + ":" + f.info["master_port"]
		}
		if f.info["master_link_status"] == "down" {
			found += ", which it cannot reach"
		}
		return judgment{failure, found,
			"name the master in the URL, or the Sentinels with ?master_name=NAME: replicas take no locks"}
	case f.info == nil:
		return judgment{unknown, "this user may not ask INFO", adminDo}
	case behind(f) != "":
		return judgment{warning, behind(f),
			"see that replica's log: a failover to it forgets the locks that it has not received"}
	case replicas < needed:
		return judgment{failure, found, "bring the replicas back: without them the master refuses writes"}
	case replicas == 0:
		return judgment{fine, "no replica: while this server is down, no lock can be taken", ""}
	case !known:
		return unasked(fmt.Sprintf("%d replicas; ", replicas), "min-replicas-to-write")
	case f.config["min-replicas-max-lag"] == "0":
		return judgment{warning, found + ", min-replicas-max-lag 0",
			"set min-replicas-max-lag 10: with 0, min-replicas-to-write has no effect"}
	case least == "0":
		do := "set min-replicas-to-write 1 and min-replicas-max-lag 10: " +
			"otherwise a master that is cut off continues to grant locks, which the failover forgets"
		if replicas == 1 {
			do += "; then have two replicas, because otherwise an outage of this replica stops all locks"
		}
		return judgment{warning, found, do}
	}
	return judgment{fine, fmt.Sprintf("%s; WaitReplicas can wait for up to %d", found, replicas), ""}
}

// maxLag is the longest time, in seconds, for which a replica may send nothing to its master. A replica that
// works sends a message every second.
const maxLag = 10

// behind describes the first replica that is not in sync. It returns "" if there is no such replica.
func behind(f facts) string {
	for i := range f.number("connected_slaves") {
		line := f.info[fmt.Sprintf("slave%d", i)] // for example ip=…,port=…,state=online,offset=…,lag=…
		fields := map[string]string{}
		for pair := range strings.SplitSeq(line, ",") {
			k, v, _ := strings.Cut(pair, "=")
			fields[k] = v
		}
		lag, _ := strconv.Atoi(fields["lag"])
		if fields["state"] != "online" || lag > maxLag {
			return fmt.Sprintf("the replica %s:%s is %s, and last answered %d s ago",
				fields["ip"], fields["port"], fields["state"], lag)
		}
	}
	return ""
}

// maxAhead is the largest difference between the clocks of a server and of this machine that causes no
// warning. With NTP, the difference is smaller than this. The default lease is much longer.
const maxAhead = time.Second

func checkClock(f facts) judgment {
	if f.err != nil {
		return judgment{Status: unknown}
	}
	found := fmt.Sprintf("ahead of this machine's by %v, give or take %v",
		f.ahead.Round(time.Millisecond), (f.rtt / 2).Round(10*time.Microsecond))
	if f.ahead.Abs()-f.rtt/2 > maxAhead {
		return judgment{warning, found, "run NTP on all servers, and let it slew: a clock that is set " +
			"forward ends leases early, a clock that is set back prolongs them, and tokens follow the clock"}
	}
	return judgment{fine, found, ""}
}

// leastBuffer is the smallest limit of an output buffer, in bytes, that causes no warning. Even for a busy
// session, Redis buffers fewer bytes of messages.
const leastBuffer = 1 << 20

func checkPubSub(f facts) judgment {
	limits, ok := f.config["client-output-buffer-limit"]
	if !ok {
		return unasked("", "client-output-buffer-limit")
	}
	// For example, limits is "normal 0 0 0 slave ... pubsub HARD SOFT SECONDS".
	_, own, _ := strings.Cut(limits, "pubsub ")
	found := "client-output-buffer-limit pubsub " + own
	words := strings.Fields(own)
	if len(words) == 3 && words[0] == "0" && (words[1] == "0" || words[2] == "0") {
		return judgment{warning, found,
			"set a limit, such as the default 32mb 8mb 60: a subscriber that does not read fills the memory"}
	}
	var low []string
	for i, name := range []string{"hard", "soft"}[:min(2, len(words))] {
		if n, err := strconv.ParseInt(words[i], 10, 64); err == nil && n > 0 && n < leastBuffer {
			low = append(low, name)
		}
	}
	if len(low) > 0 {
		return judgment{warning, found, "raise its " + strings.Join(low, " and its ") + " limit to at " +
			"least 1mb: a subscription that is behind for a moment is cut, " +
			"and its waiters wait until there is a new subscription"}
	}
	return judgment{fine, found, ""}
}

func checkClients(f facts) judgment {
	limit, ok := f.config["maxclients"]
	if most := f.info["maxclients"]; !ok && most != "" { // newer servers show the limit in INFO, too
		limit, ok = most, true
	}
	most, _ := strconv.ParseInt(limit, 10, 64)
	connected := f.number("connected_clients")
	// go-redis has a pool of 10 connections for each CPU, and a pool of 10 for pipelines. A subscription
	// needs one.
	one := int64(10*runtime.GOMAXPROCS(0) + 11)
	found := fmt.Sprintf("%d connected, maxclients %d", connected, most)
	switch {
	case !ok:
		return unasked("", "maxclients")
	case connected > most/10*9:
		return judgment{warning, found, "raise maxclients, or use smaller pools: " +
			"when it is reached, new connections are refused, and a renewal may need one"}
	case most < one:
		return judgment{warning, found,
			fmt.Sprintf("raise maxclients: one process on this machine may open %d connections", one)}
	}
	return judgment{fine, found, ""}
}

// leastBusy is the smallest lua-time-limit, in ms, that causes no warning. Scripts of Lockline take much less
// time, but scripts of other programs may take longer.
const leastBusy = 1000

func checkScripts(f facts) judgment {
	limit, ok := f.config["lua-time-limit"] // newer servers also call this setting busy-reply-threshold
	found := "lua-time-limit " + limit
	ms, _ := strconv.Atoi(limit)
	switch {
	case !ok:
		return unasked("", "lua-time-limit")
	case ms > 0 && ms < leastBusy: // with 0, requests wait until the script ends
		return judgment{warning, found,
			"set lua-time-limit 5000: while a script runs for longer than the limit, requests are refused"}
	}
	return judgment{fine, found, ""}
}

const leastClientMemory = 10 << 20 // bytes

// checkClientMemory judges maxmemory-clients, a setting of Redis since version 7. If the connections of all
// clients use more memory than this limit, Redis closes the connections that use most.
func checkClientMemory(f facts) judgment {
	text, ok := f.config["maxmemory-clients"]
	evicted := f.number("evicted_clients")
	found := fmt.Sprintf("maxmemory-clients %s, %d connections closed for it since the start", text, evicted)
	limit, _ := strconv.ParseInt(text, 10, 64)
	if percent, isPart := strings.CutSuffix(text, "%"); isPart {
		n, _ := strconv.ParseInt(percent, 10, 64)
		limit = f.number("maxmemory") / 100 * n // 0, which means no limit, if maxmemory is not set
	}
	const do = ": the connection that is closed may be that of a renewal or a subscription"
	switch version := f.info["redis_version"]; {
	case !ok && len(f.config) > 0, strings.HasPrefix(version, "6."):
		return judgment{fine, "this version has no maxmemory-clients", ""}
	case !ok:
		return unasked("", "maxmemory-clients")
	case evicted > 0:
		return judgment{warning, found, "raise maxmemory-clients, or set it to 0" + do}
	case limit > 0 && limit < leastClientMemory:
		return judgment{warning, found, "raise maxmemory-clients to at least 10mb, or set it to 0" + do}
	}
	return judgment{fine, found, ""}
}
