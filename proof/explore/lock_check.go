package explore

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// holder returns the owner that has the lock in Redis at a Redis time in microseconds, and the lock's token.
// The owner is "" if nobody holds the lock, or if its lease has ended.
func holder(space *keyspace.Space, now int64) (owner string, token int64) {
	hash := space.Hash(lockKeys[0])
	if lockEnds(space) > now {
		owner = hash["owner"]
	}
	return owner, integer(hash["token"])
}

// standing is an attempt in the queue of a lock or of permits, by its entry in Redis.
type standing struct {
	owner    string
	n        int64 // permits that it wants
	alive    int64 // Redis time in microseconds until which it is known to live
	listened bool  // whether its session had a subscription at its last request
}

// lockEnds returns the Redis time in microseconds at which the last lease of a lock ends or has ended.
func lockEnds(space *keyspace.Space) int64 { return integer(space.Hash(lockKeys[0])["ends"]) }

// lockQueue returns the attempts that wait for a lock, in their order.
func lockQueue(space *keyspace.Space) (queue []standing) {
	waiters := space.Hash(lockKeys[2])
	for _, owner := range space.Members(lockKeys[1]) {
		w := standing{owner: owner, n: 1}
		if entry := strings.Fields(waiters[owner]); len(entry) > 3 {
			w.alive, w.listened = integer(entry[0]), strings.HasSuffix(entry[3], "+")
		}
		queue = append(queue, w)
	}
	return queue
}

// observation is the effect of a script on the lock.
type observation struct {
	granted string // owner to which it was granted, or ""
	ended   string // owner whose grant an operator ended, or ""
	token   int64  // of granted
	wrong   string // forbidden effect, or ""
}

// slack is the time in milliseconds that a real server may take for a script.
const slack = 100

// Observe looks for grants, and for forbidden effects.
func (r *lockRules) Observe(env keyspace.Env, p Packet, before *keyspace.Space, did keyspace.Effect) any {
	o := observation{}
	wrong := func(format string, args ...any) {
		if o.wrong == "" {
			o.wrong = fmt.Sprintf(format, args...)
		}
	}
	argv := strings.Split(p.Argv, separator)
	if fault := lockFault(before, did.Space); fault != "" {
		wrong("%s", fault)
	}
	was, wasToken := holder(before, env.Now)
	is, token := holder(did.Space, env.Now)
	asking, leaves, asks, kept := "", "", "", "" // a session, and attempts
	switch p.Script {
	case lockScript:
		asks = argv[0]
		asking = sessionOf(asks)
		if argv[6] != "0" {
			kept = asks
		}
		known := slices.Contains(before.Members(lockKeys[1]), asks)
		after := did.Space.Members(lockKeys[1])
		switch {
		case !known && slices.Contains(after, asks) && after[len(after)-1] != asks:
			wrong("%s comes into the queue before others", asks)
		case argv[6] == "0" && slices.Contains(after, asks):
			wrong("%s stands in the queue, and did not want to", asks)
		}
	case releaseScript:
		leaves = argv[0]
		asking = sessionOf(leaves)
		if slices.Contains(did.Space.Members(lockKeys[1]), leaves) {
			wrong("%s has left, and stands in the queue", leaves)
		}
		if hash, token := before.Hash(lockKeys[0]), integer(argv[1]); strings.HasPrefix(did.Reply, "R") &&
			argv[1] != "" && (was != leaves || wasToken != token) &&
			(token > integer(hash["released"]) || token <= integer(hash["lost"])) {
			wrong("%s is told that it has released the lock, and has lost it", leaves)
		}
	case keepScript:
		if did.Reply == "K" && (was != argv[0] || number(wasToken) != argv[1]) {
			wrong("%s renews what it does not hold", argv[0])
		}
	case forceScript:
		if did.Reply == "1" && len(argv) > 2 && number(wasToken) != argv[2] {
			wrong("an operator frees another holder's lock than the one that was seen")
		}
	}
	if fault := stayFault(env, argv, p.Script == releaseScript, before, did); fault != "" {
		wrong("%s", fault)
	}
	if leaves != "" && is == leaves+taken {
		return o
	}
	if was != "" && (was != is || wasToken != token) {
		switch {
		case leaves == was:
		case p.Script == forceScript:
			o.ended = was
		default:
			wrong("%s lost the lock though its lease is not over", was)
		}
	}
	next := nextInLine(env, before, asking, leaves, kept)
	if is == "" {
		handsOver := p.Script == releaseScript || did.Reply != "" && strings.Contains("RQ1", did.Reply[:1])
		if handsOver && next != "" {
			wrong("the lock is left free, and %s waits for it", next)
		}
		return o
	}
	if was == is && wasToken == token {
		if leaves != "" {
			o.wrong = cmp.Or(o.wrong, handedOn(env, lockQueue(before), did.Published, leaves, is,
				lockEnds(did.Space)))
		}
		return o
	}
	o.granted, o.token = is, token
	told := slices.ContainsFunc(did.Published, func(m keyspace.Message) bool {
		return m.Channel == channelPrefix+sessionOf(is) && strings.HasPrefix(m.Text, is+" "+number(token)+" ")
	})
	switch {
	case next != "" && next != is:
		wrong("%s is granted the lock, and %s is the first in the queue", is, next)
	case next == "" && is != asks:
		wrong("%s is granted the lock, for which it did not wait", is)
	case slices.Contains(did.Space.Members(lockKeys[1]), is):
		wrong("%s is granted the lock, and keeps its place in the queue", is)
	case lockEnds(did.Space)-env.Now > micro(lockLease+slack):
		wrong("%s is granted the lock for longer than it asked for", is)
	case sessionOf(is) != asking && !told && env.Listening(channelPrefix+sessionOf(is)) > 0:
		wrong("%s is granted the lock, and is not told", is)
	}
	return o
}

// lockFault returns a fault of the keys after a script. The comments of lock.lua and queue.lua describe
// them. The hash outlives the lease by the retention. The hash and the keys of the queue live for as long
// as the hash says. It returns "" if nothing is wrong.
func lockFault(before, after *keyspace.Space) string {
	hash, queue := after.Hash(lockKeys[0]), lockQueue(after)
	lives, queued := integer(hash["lives"]), integer(hash["queued"])
	switch {
	case len(hash) > 0 && after.Expires(lockKeys[0]) < max(1, lives/1000):
		return "the hash says that it lives for longer than it does"
	case hash["owner"] != "" && lives < lockEnds(after)+micro(retention):
		return "the hash does not outlive the lease"
	case len(queue) != len(after.Hash(lockKeys[2])):
		return "the queue and the waiters are not the same attempts"
	case len(queue) == 0 && queued != 0 && len(lockQueue(before)) > 0:
		return "the queue was emptied, and the hash says that there is one"
	case len(queue) > 0 && min(after.Expires(lockKeys[1]), after.Expires(lockKeys[2])) < max(1, queued/1000):
		return "the hash says that the queue lives for longer than it does"
	}
	for _, w := range queue {
		if w.alive == 0 || w.alive > queued {
			return fmt.Sprintf("%s waits for longer than the hash says that there is a queue", w.owner)
		}
	}
	return ""
}

// taken is the end of the owner field of a lock that stays taken though its holder has unlocked.
const taken = "~"

// stayFault returns a fault of a release that leaves a lock taken. The first copy of the request
// decides for how long, and notifies the first waiters of two sessions. It returns "" if nothing is wrong.
func stayFault(
	env keyspace.Env, argv []string, releases bool, before *keyspace.Space, did keyspace.Effect,
) string {
	is, _ := holder(did.Space, env.Now)
	was, _ := holder(before, env.Now)
	if strings.HasSuffix(was, taken) {
		if was == is && lockEnds(did.Space) != lockEnds(before) {
			return "another request changes for how long the lock stays taken"
		}
		return ""
	}
	if !strings.HasSuffix(is, taken) {
		if releases && len(argv) > 6 && was == argv[0] {
			return fmt.Sprintf("%s is to leave the lock taken, and does not", was)
		}
		return ""
	}
	stays := int64(0)
	if releases && len(argv) > 6 {
		stays = max(1, integer(argv[6]))
	}
	end := lockEnds(did.Space)
	switch {
	case stays == 0 || is != argv[0]+taken || was != argv[0]:
		return fmt.Sprintf("the lock stays taken by %s, which did not unlock it", is)
	case end < env.Now+micro(stays) || end > env.Now+micro(stays+slack):
		return fmt.Sprintf("the lock stays taken for %d ms", (end-env.Now)/1000)
	}
	var sessions []string
	for _, w := range lockQueue(before) {
		session := sessionOf(w.owner)
		listens := env.Listening(channelPrefix+session) > 0
		if w.alive < env.Now || w.listened && !listens || slices.Contains(sessions, session) {
			continue
		}
		if sessions = append(sessions, session); len(sessions) > 2 {
			break
		}
		told := slices.ContainsFunc(did.Published, func(m keyspace.Message) bool {
			return strings.HasPrefix(m.Text, w.owner+" ")
		})
		if listens && end+1000 < w.alive && !told {
			return fmt.Sprintf("the lock stays taken, and %s does not learn when to look", w.owner)
		}
	}
	return ""
}

// handedOn returns a fault if an attempt leaves the queue and the next waiter behind it should be notified
// but is not. This is the first waiter that is alive, has a subscription, and is not in the session of the
// holder whose lease ends first, at end. It needs no message if it sends a heartbeat before that. handedOn
// returns "" if nothing is wrong.
func handedOn(
	env keyspace.Env, queue []standing, published []keyspace.Message, leaves, holder string, end int64,
) string {
	from := slices.IndexFunc(queue, func(w standing) bool { return w.owner == leaves })
	for at, w := range queue {
		session := sessionOf(w.owner)
		listens := env.Listening(channelPrefix+session) > 0
		switch {
		case w.owner == leaves || w.alive < env.Now ||
			session == sessionOf(holder) && !strings.HasSuffix(holder, taken):
			continue
		case w.listened && !listens:
			continue
		case at < from || from < 0 || !listens:
			return ""
		case end+1000 >= w.alive: // scripts round to milliseconds
			return ""
		}
		for _, m := range published {
			if words := strings.Fields(m.Text); len(words) == 2 && words[0] == w.owner {
				return ""
			}
		}
		return fmt.Sprintf("%s leaves the queue, and %s does not learn when to look", leaves, w.owner)
	}
	return ""
}

func sessionOf(owner string) string {
	session, _, _ := strings.Cut(owner, ":")
	return session
}

// nextInLine returns the first waiter that is alive, and that has a subscription or belongs to the session of
// the request, which receives the reply. It returns "" if there is none. It leaves out leaves, the owner of a
// release. kept counts as alive in any case.
func nextInLine(env keyspace.Env, space *keyspace.Space, asking, leaves, kept string) string {
	for _, w := range lockQueue(space) {
		if w.alive < env.Now && w.owner != kept || w.owner == leaves {
			continue
		}
		session := sessionOf(w.owner)
		if session == asking || !w.listened || env.Listening(channelPrefix+session) > 0 {
			return w.owner
		}
	}
	return ""
}

// Observed checks that tokens grow, and that no owner is granted a lock after it has left.
func (r *lockRules) Observed(v *View[attempt], p Packet, seen any) {
	o := seen.(observation)
	if o.wrong != "" {
		v.Fail("%s", o.wrong)
		return
	}
	v.forgetHints()
	if i := r.current(v, o.ended); i >= 0 {
		v.Actors[i].Forced = true
	}
	v.revive(p, lockScript, releaseScript)
	if o.granted == "" {
		return
	}
	if o.token <= v.Granted {
		v.Fail("token %d is granted after %d", o.token-epoch, v.Granted-epoch)
	}
	v.Granted = o.token
	if !r.wants(v, o.granted) && !v.errandFor(o.granted) && !v.revived(o.granted) {
		v.Fail("%s is granted the lock after it had left", o.granted)
	}
}

// forgetHints removes the messages with the time of a waiter's next look, as waiters here may look at any
// time.
func (v *View[A]) forgetHints() {
	for _, n := range slices.Clone(v.net) {
		if p := v.sys.packets.values[n]; p.Kind == news && strings.Count(p.Text, " ") == 1 {
			v.remove(n)
		}
	}
}

// wants reports whether a grant to this owner has an attempt that accepts or releases it.
func (r *lockRules) wants(v *View[attempt], owner string) bool {
	session := int(owner[0] - 'A')
	for i := session * r.each; i < (session+1)*r.each; i++ {
		a := v.Actors[i]
		lives := a.Phase != idle && a.Phase < over
		if a.Phase == expired { // until Unlock, and while a copy may still be granted the lock
			lives = !a.GaveUp || a.Late && a.NotAfter >= v.Now
		}
		if a.Phase == dead || lives && r.owner(i, a) == owner {
			return true
		}
	}
	return false
}

// errandFor reports whether a release of the owner is in flight in the background.
func (v *View[A]) errandFor(owner string) bool {
	return slices.ContainsFunc(v.net, func(n uint32) bool {
		p := v.sys.packets.values[n]
		return p.Kind == errand && strings.HasPrefix(p.Argv, owner+separator)
	})
}

func (r *lockRules) Check(v *View[attempt]) error {
	holds := ""
	for i, a := range v.Actors {
		if a.Phase != holding || a.Forced || v.Now >= a.Deadline {
			continue
		}
		if holds != "" {
			return fmt.Errorf("both %s and %s hold the lock", holds, r.owner(i, a))
		}
		holds = r.owner(i, a)
	}
	return nil
}

// End checks that only keys remain that a released lock keeps for a while.
func (r *lockRules) End(v *View[attempt]) error {
	s := v.Space()
	if s.LastExpiry() == math.MaxInt64 {
		return fmt.Errorf("a key is left that never expires: %q", s.Keys())
	}
	if v.Crashed != 0 {
		return nil
	}
	now := v.serverNow()
	if v.Revived != "" { // the revived grant or entry expires by then
		now += micro(max(lockLease, 2*liveness))
		s = s.Clone()
		s.Purge(now)
	}
	owner, _ := holder(s, now)
	has := owner != "" && !strings.HasSuffix(owner, taken)
	if i := r.current(v, owner); has && (i < 0 || v.Actors[i].Phase != expired) {
		return fmt.Errorf("%s has the lock in Redis, and does not know it", owner)
	}
	for _, key := range lockKeys[1:] {
		if slices.Contains(s.Keys(), key) {
			return fmt.Errorf("left in Redis: %q", s.Keys())
		}
	}
	return nil
}
