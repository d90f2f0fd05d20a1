package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// checks are what the doctor asks of each server's facts. Most need INFO.
var checks = []struct {
	name  string
	info  bool
	judge func(facts) finding
}{
	{"reach", false, checkReach}, {"version", true, checkVersion}, {"cluster", true, checkCluster},
	{"eviction", true, checkEviction}, {"memory", true, checkMemory}, {"persistence", true, checkPersistence},
	{"replication", true, checkReplication}, {"clock", false, checkClock}, {"pubsub", false, checkPubSub},
	{"clients", true, checkClients}, {"scripts", false, checkScripts},
}

const adminDo = "run the doctor as an administrator, too"
const rightsDo = "give this user the rights that docs/operations.md lists"

// unreached is the finding about a server that does not answer, or refuses to.
func unreached(server string, err error) finding {
	f := finding{Server: server, Check: "reach", Status: failure, Found: say(err), Do: rightsDo}
	if !strings.Contains(err.Error(), "NOPERM") {
		f.Do = "see that Redis runs, that host, port, TLS (rediss://), user and password " +
			"of --redis are right, and that maxclients is not reached; on a Cluster, that it has slots"
	}
	return f
}

func checkReach(f facts) finding {
	if f.err != nil {
		return unreached("", f.err)
	}
	return finding{Status: fine, Found: fmt.Sprintf("answers in %v", f.rtt.Round(10*time.Microsecond))}
}

// unasked is the finding where only known is known, and not the setting.
func unasked(known, setting string) finding {
	return finding{Status: unknown, Found: known + "this user may not ask CONFIG for " + setting, Do: adminDo}
}

func checkVersion(f facts) finding {
	name, version := "Redis", f.info["redis_version"]
	if v := f.info["valkey_version"]; v != "" {
		name, version = "Valkey", v
	}
	found := finding{Status: fine, Found: name + " " + version}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < 6 || major == 6 && minor < 2) {
		found.Status, found.Do = failure, "use Redis 6.2 or newer, or Valkey: nothing older is tested"
	}
	return found
}

func checkCluster(f facts) finding {
	state, known := f.info["cluster_state"]
	switch {
	case f.info["cluster_enabled"] != "1":
		return finding{Status: fine, Found: "not a Cluster"}
	case !known:
		return finding{Status: unknown, Found: "this user may not ask CLUSTER INFO", Do: adminDo}
	case state != "ok":
		return finding{Status: failure, Found: "a master of a Cluster whose state is " + state,
			Do: "see CLUSTER NODES: slots without a master take no locks"}
	}
	return finding{Status: fine, Found: "a master of a Cluster whose state is ok"}
}

func checkEviction(f facts) finding {
	policy, limit := f.info["maxmemory_policy"], f.number("maxmemory")
	found := finding{Found: fmt.Sprintf("maxmemory-policy %s, maxmemory %s, %d keys evicted since the start",
		policy, size(limit), f.number("evicted_keys"))}
	switch {
	case policy == "noeviction":
		found.Status = fine
	case limit == 0:
		found.Status, found.Do = warning, "set maxmemory-policy noeviction, before an operator sets maxmemory: every policy but that one can drop a lock"
	default:
		found.Status, found.Do = failure, "set maxmemory-policy noeviction: this one drops locks when memory is short; or keep locks on a server without a cache"
	}
	return found
}

func checkMemory(f facts) finding {
	used, limit := f.number("used_memory"), f.number("maxmemory")
	found := finding{Status: fine, Found: fmt.Sprintf("%s used of %s", size(used), size(limit))}
	if limit > 0 && used > limit/10*9 {
		found.Status, found.Do = warning, "raise maxmemory, or remove data: when it is full, held locks are renewed and freed, and go to waiters in their queue, but new ones are refused"
	}
	return found
}

// size is an amount of memory; 0 is no limit.
func size(bytes int64) string {
	switch {
	case bytes == 0:
		return "no limit"
	case bytes < 10<<20:
		return fmt.Sprintf("%d kB", bytes>>10)
	}
	return fmt.Sprintf("%d MB", bytes>>20)
}

func checkPersistence(f facts) finding {
	found := finding{Status: fine}
	save, known := f.config["save"]
	stop, fsync := f.config["stop-writes-on-bgsave-error"], f.config["appendfsync"]
	aof := f.info["aof_enabled"] == "1"
	switch {
	case aof && f.info["aof_last_write_status"] == "err":
		found.Status, found.Found = failure, "the append-only file cannot be written"
		found.Do = "see the server's log, and its disk: it refuses writes until then"
	case f.info["rdb_last_bgsave_status"] == "err" && stop != "no" && save != "":
		found.Status, found.Found = failure, "the last snapshot failed"
		found.Do = "see the server's log, and its disk: it refuses writes until a snapshot succeeds"
	case aof && fsync == "no":
		found.Status, found.Found = warning, "append-only file, appendfsync no"
		found.Do = "set appendfsync everysec: a crash of the machine loses what the kernel had not written, up to half a minute of locks"
	case aof:
		found.Found = "append-only file, appendfsync " + fsync
		if fsync == "everysec" {
			found.Found += ": a crash of the machine loses the last second"
		}
	case !known:
		return unasked("no append-only file; ", "save")
	case save != "":
		found.Status, found.Found = warning, "snapshots only (save "+save+")"
		found.Do = "set appendonly yes: a restart forgets the locks that were taken since the last snapshot"
	default:
		found.Status, found.Found = warning, "none"
		found.Do = "set appendonly yes and appendfsync everysec: a restart forgets all locks, and others get them while their holders run"
	}
	return found
}

func checkReplication(f facts) finding {
	found := finding{Status: fine}
	replicas := f.number("connected_slaves")
	least, known := f.config["min-replicas-to-write"]
	switch {
	case f.info["role"] == "slave":
		found.Status, found.Found = failure, "this is a replica of "+f.info["master_host"]+":"+f.info["master_port"]
		found.Do = "name the master in the URL, or the Sentinels with ?master_name=NAME: replicas take no locks"
	case behind(f) != "":
		found.Status, found.Found = warning, behind(f)
		found.Do = "see that replica's log: a failover to it forgets the locks that it has not received"
	case least != "" && least != "0" && strconv.FormatInt(replicas, 10) < least:
		found.Status, found.Found = failure, fmt.Sprintf("%d replicas, min-replicas-to-write %s", replicas, least)
		found.Do = "bring the replicas back: without them the master refuses writes"
	case replicas == 0:
		found.Found = "no replica: while this server is down, no lock can be had"
	case !known:
		return unasked(fmt.Sprintf("%d replicas; ", replicas), "min-replicas-to-write")
	case least == "0":
		found.Status, found.Found = warning, fmt.Sprintf("%d replicas, min-replicas-to-write 0", replicas)
		found.Do = "set min-replicas-to-write 1 and min-replicas-max-lag 10: else a master that is cut off goes on granting locks, which the failover forgets"
		if replicas == 1 {
			found.Do += "; have two replicas then, or an outage of this one stops all locks"
		}
	default:
		found.Found = fmt.Sprintf("%d replicas, min-replicas-to-write %s", replicas, least)
	}
	if found.Status == fine && replicas > 0 {
		found.Found += fmt.Sprintf("; WaitReplicas can wait for up to %d", replicas)
	}
	return found
}

// maxLag is how many seconds a replica may be silent; they say something every second.
const maxLag = 10

// behind says which replica is not in sync, if any.
func behind(f facts) string {
	for i := range f.number("connected_slaves") {
		line := f.info[fmt.Sprintf("slave%d", i)] // ip=…,port=…,state=online,offset=…,lag=…
		fields := map[string]string{}
		for pair := range strings.SplitSeq(line, ",") {
			k, v, _ := strings.Cut(pair, "=")
			fields[k] = v
		}
		lag, _ := strconv.Atoi(fields["lag"])
		if fields["state"] != "online" || lag > maxLag {
			return fmt.Sprintf("the replica %s:%s is %s, and last answered %d s ago", fields["ip"], fields["port"], fields["state"], lag)
		}
	}
	return ""
}

// maxAhead is more than NTP leaves, and less than a lease.
const maxAhead = time.Second

func checkClock(f facts) finding {
	if f.err != nil {
		return finding{Status: unknown}
	}
	found := finding{Status: fine, Found: fmt.Sprintf("ahead of this machine's by %v, give or take %v",
		f.ahead.Round(time.Millisecond), (f.rtt / 2).Round(10*time.Microsecond))}
	if f.ahead.Abs()-f.rtt/2 > maxAhead {
		found.Status = warning
		found.Do = "run NTP on all servers, and let it slew: a clock that is set forward ends leases early, one that is set back stretches them, " +
			"and tokens follow it"
	}
	return found
}

const leastBuffer = 1 << 20 // bytes; a subscription of a busy session is behind by much less

func checkPubSub(f facts) finding {
	limits, ok := f.config["client-output-buffer-limit"]
	if !ok {
		return unasked("", "client-output-buffer-limit")
	}
	// "normal 0 0 0 slave ... pubsub HARD SOFT SECONDS"
	_, own, _ := strings.Cut(limits, "pubsub ")
	found := finding{Status: fine, Found: "client-output-buffer-limit pubsub " + own}
	words := strings.Fields(own)
	var low []string
	for i, name := range []string{"hard", "soft"}[:min(2, len(words))] {
		if n, err := strconv.ParseInt(words[i], 10, 64); err == nil && n > 0 && n < leastBuffer {
			low = append(low, name)
		}
	}
	if len(low) > 0 {
		found.Status = warning
		found.Do = "raise its " + strings.Join(low, " and its ") + " limit to at least 1mb: " +
			"a subscription that is behind for a moment is cut, and its waiters wait until they have a new one"
	}
	if len(words) == 3 && words[0] == "0" && (words[1] == "0" || words[2] == "0") {
		found.Status = warning
		found.Do = "set a limit, 32mb 8mb 60 by default: a subscriber that reads nothing fills the server's memory"
	}
	return found
}

func checkClients(f facts) finding {
	limit, ok := f.config["maxclients"]
	if most := f.info["maxclients"]; !ok && most != "" { // Redis 7 has it in INFO, too
		limit, ok = most, true
	}
	most, _ := strconv.ParseInt(limit, 10, 64)
	connected := f.number("connected_clients")
	one := int64(10*runtime.GOMAXPROCS(0) + 11) // go-redis's pools, and a subscription
	found := finding{Status: warning, Found: fmt.Sprintf("%d connected, maxclients %d", connected, most)}
	switch {
	case !ok:
		return unasked("", "maxclients")
	case connected > most/10*9:
		found.Do = "raise maxclients, or use smaller pools: " +
			"new connections are refused when it is reached, and renewals need one where others broke"
	case most < one:
		found.Do = fmt.Sprintf("raise maxclients: one process on this machine may open %d connections", one)
	default:
		found.Status = fine
	}
	return found
}

const leastBusy = 1000 // ms; scripts of locks take much less, but others' may not

func checkScripts(f facts) finding {
	limit, ok := f.config["lua-time-limit"] // which newer servers also call busy-reply-threshold
	ms, _ := strconv.Atoi(limit)
	switch {
	case !ok:
		return unasked("", "lua-time-limit")
	case ms > 0 && ms < leastBusy: // with 0, requests wait for a script's end
		return finding{Status: warning, Found: "lua-time-limit " + limit,
			Do: "set lua-time-limit 5000: while any program's script runs for longer, requests are refused"}
	}
	return finding{Status: fine, Found: "lua-time-limit " + limit}
}
