//go:build mutants

package sim_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var within = flag.Int("within", 150, "how many seeds a mutant may live for")

// A mutant is the library with one deliberate break.
type mutant struct {
	name string
	kind string // of the worlds that are to catch it
	file string
	old  string // occurs once
	new  string
	// why the simulation cannot catch it; empty: it must.
	harmless string
}

var mutants = []mutant{
	{name: "lock skips the owner check", kind: "rlock", file: "internal/queue/lock.lua",
		old: "if not owner then\n  local next", new: "if true then\n  local next"},
	{name: "renewal skips the token check", kind: "rlock", file: "internal/protocol/keep.lua",
		old: "if held[1] == ARGV[2] then", new: "if held[1] then"},
	{name: "release skips the owner check", kind: "rlock", file: "internal/queue/release.lua",
		old: "if not held[1] then", new: "if not held[2] then"},
	{name: "the count is added to, not set", kind: "rlock", file: "internal/protocol/keep.lua",
		old: "redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[4], 's', ARGV[3])", new: "redis.pcall('HINCRBY', KEYS[1], ARGV[1], 1)",
		harmless: "the hold count in Redis only informs: no script decides by it"},
	{name: "attempts reuse an id", kind: "rlock", file: "internal/session/session.go",
		old: "s.attempts.Add(1), 10", new: "s.attempts.Load(), 10"},
	{name: "a heartbeat adds a waiter that was dropped", kind: "fairlock", file: "internal/queue/heartbeat.lua",
		old: "    missing[#missing + 1] = ARGV[i]\n", new: "    redis.call('ZADD', KEYS[3], stamp(now), ARGV[i])\n    redis.call('ZADD', KEYS[4], until_, ARGV[i])\n"},
	{name: "an unwanted grant is kept", kind: "rlock", file: "internal/queue/enter.go",
		old: "a.Unit.RollBack(a, answer.Status == protocol.Granted || a.Grant.Late != 0)", new: "a.Unit.RollBack(a, answer.Status == protocol.Stale)"},
	{name: "a new connection does not subscribe again", kind: "rlock", file: "pubsub/shard.go",
		old: "	slices.Sort(s.fresh)\n", new: "	slices.Sort(s.fresh)\n	s.fresh = nil\n"},
	{name: "no margin for drift", kind: "rlock", file: "internal/protocol/validity.go",
		old: "return lease - lease/100 - 2*time.Millisecond", new: "return lease"},
	{name: "a force does not look at the token", kind: "rlock", file: "internal/queue/force.lua",
		old: "if ARGV[3] and ARGV[3] ~= token then", new: "if false then"},
	{name: "a hand-over sends no message", kind: "fairlock", file: "internal/queue/release.lua",
		old: "  if session(to) ~= asking then", new: "  if false then"},
	{name: "a hand-over sends no message, of rlock", kind: "rlock", file: "internal/queue/release.lua",
		old: "  if session(to) ~= asking then", new: "  if false then"},
	{name: "a waiter that listens is passed over", kind: "rlock", file: "internal/queue/release.lua",
		old: "return count[2] > 0", new: "return false"},
	{name: "a waiter that was never seen to listen is passed over", kind: "fairlock", file: "internal/queue/release.lua",
		old: "or not marked or ", new: "or "},
	{name: "a waiter that does not listen is not passed over", kind: "fairlock", file: "internal/queue/release.lua",
		old: "return count[2] > 0", new: "return true",
		harmless: "it is granted the lock for two seconds at most. Many of them would cost time: TestTheDeadCostTheLivingNoTime of fairlock catches it"},
	{name: "the not-after is ignored", kind: "rlock", file: "internal/queue/lock.lua",
		old: "if now > tonumber(deadline) then", new: "if now < 0 then"},
	{name: "no tombstone for a late copy", kind: "rlock", file: "internal/queue/release.lua",
		old: "if tonumber(late) >= now then", new: "if false then"},
	{name: "a dead waiter is not skipped", kind: "fairlock", file: "internal/queue/release.lua",
		old: "    if alive > now + 1e15 then -- decades: it is no liveness time\n      alive = 0", new: "    if alive < now then\n      alive = now",
		harmless: "what the dead are granted is the rest of their liveness, which is over: it ends at once. Many of them would cost time"},
	{name: "a newcomer passes the queue", kind: "fairlock", file: "internal/queue/lock.lua",
		old: "if not next or next == asking then", new: "if true then"},
	{name: "a place is taken over though others stand between", kind: "fairlock", file: "internal/queue/lock.lua",
		old: "local joins = last[1] == ARGV[9]", new: "local joins = ARGV[9] ~= ''"},
	{name: "a message counts, whatever its nonce", kind: "fairlock", file: "internal/queue/answer.go",
		old: "subtle.ConstantTimeCompare([]byte(c.nonce), []byte(words[3])) == 1:", new: "subtle.ConstantTimeCompare(nil, nil) == 1:"},
	{name: "a hand-over is for another lease than was asked for", kind: "fairlock", file: "internal/queue/release.lua",
		old: "lease = math.min(tonumber(lease or 9e15), math.ceil((alive - now) / 1000) + 1, FIRST)", new: "lease = math.ceil((alive - now) / 1000) + 1"},
	{name: "a waiter that gave up returns before its place is given up", kind: "fairlock", file: "internal/queue/queue.go",
		old: "if gone == nil {", new: "if true {"},
	{name: "nobody is woken when the lock is found gone", kind: "redlock3", file: "internal/protocol/keep.lua",
		old: "if ARGV[7] ~= '' and redis.call('HLEN', KEYS[1]) == 0 then", new: "if false then",
		harmless: "the first in line looks each third of the lease. Beside Redisson nobody does: TestOnAClusterLocksOfRedissonAreToldOfAsRedissonDoes of rlock catches it"},
	{name: "a cohort that loses its place is not in the one that took it", kind: "fairlock", file: "internal/queue/answer.go",
		old: "		c.absorb(t)\n", new: "		_ = t\n"},
	{name: "a re-entry takes a lost lock afresh", kind: "rlock", file: "internal/mutex/acquire.go",
		old: "		case handover.Lost:\n			err = failure.ErrLost", new: "		case handover.Lost:\n			err = nil"},
	{name: "leases are not renewed", kind: "rlock", file: "internal/mutex/tenure.go",
		old: "	if t.idle {\n		every = 0", new: "	if !t.idle {\n		every = 0"},
	{name: "a renewal renews nothing", kind: "rlock", file: "internal/protocol/keep.lua",
		old: "if lease > 0 then", new: "if lease < 0 then"},
	{name: "the deadline is counted from the reply", kind: "rlock", file: "internal/session/keeper.go",
		old: "Deadline: sent.Add(protocol.Valid(r.s.Lease))", new: "Deadline: sent.Add(protocol.Valid(r.s.Lease) + time.Since(sent))",
		harmless: "it takes a slow reply and then the loss of every later renewal: TestARenewedLeaseIsCountedFromWhenTheRenewalLeft of rlock catches it"},
	{name: "handed over in memory up to the deadline", kind: "rlock", file: "internal/mutex/pass.go",
		old: "case time.Until(t.Deadline()) < min(s.Lease, s.Liveness, protocol.FirstLease)/4:", new: "case time.Until(t.Deadline()) < 0:",
		harmless: "who is handed a lease that is over, or ends before it is renewed, sees that at once (succeed, and the watchdog's timer)"},
	{name: "Redis reserves two tokens, the session uses more", kind: "rlock", file: "internal/queue/lock.lua",
		old: "local BLOCK = 1000", new: "local BLOCK = 2",
		harmless: "the next token is the time in microseconds at least, and no hand-over takes less than one; it would take a clock that falls back"},
	{name: "RedLock: a majority less one", kind: "redlock3", file: "multilock/internal/quorum/quorum.go",
		old: "need: len(sessions)/2 + 1", new: "need: len(sessions) / 2"},
	{name: "RedLock: a grant counts whose token was not accepted", kind: "redlock3", file: "multilock/internal/quorum/round.go",
		old: "token, won := b.proposal, t.accepted >= q.need", new: "token, won := b.proposal, t.granted >= q.need"},
	{name: "RedLock: lost votes keep what they got", kind: "redlock3", file: "multilock/internal/quorum/round.go",
		old: "	b.release(q.s.Ctx, &r, 1) // nobody waits for it: it is repeated in the background\n", new: "	_ = r\n"},
	{name: "RedLock: who is refused does not note that it waits", kind: "redlock3", file: "multilock/redlock_lock.lua",
		old: "redis.pcall('HSET', KEYS[1], 'w', '1') ~= 1", new: "false",
		harmless: "the first in line looks each third of the lease, which faults can cost as well: TestAReleaseOfARedLockIsPublishedWhereOneWaits of multilock catches it"},
	{name: "RedLock: a release does not know of a request to join", kind: "redlock3", file: "multilock/internal/quorum/keep.go",
		old: "	v.asked, v.late = true, true\n", new: "	v.asked = true\n",
		harmless: "it takes a request to join that arrives after the release, in the one round trip between them: TestARequestToJoinThatComesAfterUnlockTakesNothing of multilock catches it"},
	{name: "RedLock: the first in line holds it without a majority", kind: "redlock3", file: "internal/broadcast/compete.go",
		old: "case r.Status == protocol.Granted:", new: "case r.Status == protocol.Granted || r.Status == protocol.Held && c.line() != nil && c.line().turn.come():"},
	{name: "RedLock: joins without a majority", kind: "redlock3", file: "multilock/internal/quorum/keep.go",
		old: "if b.undecided(v) || !v.until.IsZero() || !b.renewedSince(start) {", new: "if b.undecided(v) || !v.until.IsZero() {",
		harmless: "it takes a majority that forgets at one time; here a server that forgets stays away for a lease: TestAHoldThatAMajorityForgotJoinsNobody of multilock catches it"},
	{name: "MultiLock holds while it waits", kind: "multilock", file: "multilock/round.go",
		old: "wait := r.wait && i == r.first", new: "wait := true"},
	{name: "MultiLock leaves what its members had", kind: "multilock", file: "multilock/round.go",
		old: "unlockAll(context.WithoutCancel(ctx), holds)", new: "_ = holds"},
	{name: "MultiLock: what was reserved for a waiter is kept", kind: "multilock", file: "multilock/unlock.go",
		old: "			leaving[i], errs[i] = to.reclaim(ctx, l)\n", new: ""},
	{name: "permits: a newcomer passes the queue", kind: "semaphore", file: "internal/permit/acquire.lua",
		old: "if not queue and n <= limit - used() then", new: "if n <= limit - used() then"},
	{name: "permits: the limit is not looked at", kind: "semaphore", file: "internal/permit/acquire.lua",
		old: "if not queue and n <= limit - used() then", new: "if not queue then"},
	{name: "permits: the limit is not looked at, of readers and writers", kind: "rwlock", file: "internal/permit/acquire.lua",
		old: "if not queue and n <= limit - used() then", new: "if not queue then"},
	{name: "permits: a waiter is served though too few are free", kind: "semaphore", file: "internal/permit/release.lua",
		old: "elseif n > free then", new: "elseif false then"},
	{name: "permits: the end of a lease gives nothing back", kind: "semaphore", file: "internal/permit/acquire.lua",
		old: "    local n = holding(owner)\n    if n then\n      giveBack(owner, n)", new: "    local n\n    if n then\n      giveBack(owner, n)"},
	{name: "permits: the end of a lease gives back twice", kind: "semaphore", file: "internal/permit/acquire.lua",
		old: "      giveBack(owner, n)\n", new: "      giveBack(owner, n)\n      giveBack(owner, n)\n"},
	{name: "permits: a release that is repeated gives back twice", kind: "semaphore", file: "internal/permit/release.lua",
		old: "if n then\n  yield(owner, n, token, ARGV[6])", new: "do\n  yield(owner, n or 1, token or '0', ARGV[6])"},
	{name: "permits: a hand-over sends no message", kind: "rwlock", file: "internal/permit/release.lua",
		old: "  if session(to) ~= asking then", new: "  if false then"},
	{name: "permits: the reply does not tell which attempts of its session it served", kind: "semaphore", file: "internal/permit/release.lua",
		old: "      if session(owner) == asking then", new: "      if false then"},
	{name: "permits: a higher limit serves no waiter", kind: "semaphore", file: "internal/permit/limit.lua",
		old: "  serve('', ARGV[3], now, keep, tonumber(ARGV[1]))\n", new: ""},
	{name: "permits: the not-after is ignored", kind: "rwlock", file: "internal/permit/acquire.lua",
		old: "if now > tonumber(ARGV[3]) then", new: "if now < 0 then"},
	{name: "permits: no tombstone for a late copy", kind: "semaphore", file: "internal/permit/release.lua",
		old: "if tonumber(late) >= now then", new: "if false then"},
	{name: "permits: a reader that was a writer keeps all", kind: "rwlock", file: "internal/permit/reduce.lua",
		old: "redis.call('HSET', KEYS[6], owner, '1 ' .. token .. ' ' .. about, 'u', stamp(used() + 1))\n", new: "redis.call('HSET', KEYS[6], owner, n .. ' ' .. token .. ' ' .. about, 'u', stamp(used() + n))\n"},
	{name: "permits: a writer comes between a writer and the same as a reader", kind: "rwlock", file: "internal/permit/reduce.lua",
		old: "redis.call('HSET', KEYS[6], owner, '1 ' .. token .. ' ' .. about, 'u', stamp(used() + 1))\n", new: ""},
	{name: "permits: Redis is not told that a writer goes on as a reader", kind: "rwlock", file: "internal/permit/leave.go",
		old: "		if g.exclusive() && g.writers == 0 {", new: "		if false {"},
	{name: "permits: a force does not look at the token", kind: "semaphore", file: "internal/permit/force.lua",
		old: "(ARGV[1] == token or ", new: "(ARGV[1] ~= 'w' and ARGV[1] ~= 'r' or "},
	{name: "permits: a renewal renews nothing", kind: "rwlock", file: "internal/permit/renew.lua",
		old: "math.max(tonumber(ARGV[3]), ", new: "math.max(0, "},
	{name: "permits: a grant is counted from the reply", kind: "semaphore", file: "internal/permit/attempt.go",
		old: "a.granted(r.Token, o.Sent, a.lease())", new: "a.granted(r.Token, time.Now(), a.lease())"},
	{name: "permits: a hand-over is counted from the message", kind: "rwlock", file: "internal/permit/attempt.go",
		old: "a.since(protocol.TokenOrZero(words[1]))", new: "time.Now()"},
	{name: "permits: a message counts, whatever its nonce", kind: "semaphore", file: "internal/permit/attempt.go",
		old: "subtle.ConstantTimeCompare([]byte(a.nonce), []byte(words[3])) == 1", new: "subtle.ConstantTimeCompare(nil, nil) == 1"},
	{name: "permits: an unwanted grant is kept", kind: "semaphore", file: "internal/permit/attempt.go",
		old: "return a.redis != 0 || a.late != 0 || err != nil && wire.Judge(err).Unknown || r.Status == reply.Queued || r.Status == reply.Granted", new: "return a.late != 0"},
	{name: "permits: readers that share a grant give it back before the last one", kind: "rwlock", file: "internal/permit/leave.go",
		old: "	case g.entries > 0:", new: "	case g.entries > 1:"},
	{name: "permits: a reader joins a grant that is about to end", kind: "rwlock", file: "internal/permit/lane.go",
		old: "< l.p.s().Streak && g.lasts()", new: "< l.p.s().Streak",
		harmless: "a reader that joins what is over asks again, and one whose lease runs out loses it as any other"},
	{name: "permits: a writer hands its token on", kind: "rwlock", file: "internal/permit/leave.go",
		old: "			g.token++ // each writer has its own token of the block\n", new: ""},
	{name: "permits: one of a session that closes keeps what it has", kind: "semaphore", file: "internal/permit/pool.go",
		old: "			if !g.end(handover.Closed, nil) {\n				continue // lost or unlocked in that instant\n			}\n", new: "			if len(g.holds) > 0 || !g.end(handover.Closed, nil) {\n				continue // lost or unlocked in that instant\n			}\n"},
}

// What is broken is there to be broken. This takes no time, so it is part of the gate.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		m.source(t, "../..")
	}
}

func (m *mutant) source(t *testing.T, root string) (path, source string) {
	path = filepath.Join(root, m.file)
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(p), m.old); n != 1 {
		t.Fatalf("%s: %q occurs %d times in %s", m.name, m.old, n, m.file)
	}
	return path, string(p)
}

// Each mutant is caught, or it is said why it cannot be. The table tells after how many seeds, and
// how often the seed that caught it does so again.
func TestMutantsAreCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var table []string
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			line := m.run(t, root)
			table = append(table, fmt.Sprintf("| %s | %s | %s |", m.name, m.kind, line))
			t.Log(line)
		})
	}
	t.Logf("\n| mutant | worlds | caught |\n|---|---|---|\n%s", strings.Join(table, "\n"))
}

var caught = regexp.MustCompile(`seed (\d+), the (\d+)th; it failed again in (\d+) of (\d+) runs of\n.*\n\s*(.*)`)

// outside is how the runtime ends a program that touched a bubble from outside.
var outside = regexp.MustCompile(`inside and outside synctest bubble|from outside bubble`)

func (m *mutant) run(t *testing.T, root string) string {
	dir := t.TempDir()
	path, source := m.source(t, root)
	broken := filepath.Join(dir, "broken"+filepath.Ext(m.file))
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: broken}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{broken: strings.Replace(source, m.old, m.new, 1), overlay: string(replace)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "sim.test")
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(binary, "-test.run", "Simulated/^"+m.kind+"$", "-test.timeout", "5m", "-seeds", fmt.Sprint(*within), "-from", fmt.Sprint(*from), "-first", "-again", fmt.Sprint(*again), "-events", "1").CombinedOutput()
	found := caught.FindStringSubmatch(string(out))
	switch {
	case outside.Match(out):
		return "by the garbage collector: a forgotten Hold is unlocked from outside of the bubble, which ends the program"
	case found != nil && m.harmless != "":
		t.Errorf("it is not harmless: %s", out)
	case found != nil:
		// Seeds run in parallel, in no order: the number of the last is not how many it took.
		return fmt.Sprintf("by seed %s, the %sth, again in %s of %s runs: %.70s", found[1], found[2], found[3], found[4], found[5])
	case err != nil:
		t.Errorf("%v: %s", err, out)
	case m.harmless == "":
		t.Errorf("lived for %d seeds", *within)
	}
	return fmt.Sprintf("not within %d seeds. %s", *within, m.harmless)
}
