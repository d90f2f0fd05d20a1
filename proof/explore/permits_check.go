package explore

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// share has the permits, the token and the end of the lease of a holder in Redis.
type share struct{ n, token, till int64 }

// heldAt returns the holders whose leases have not ended.
func heldAt(space *keyspace.Space, now int64) map[string]share {
	held, hash := map[string]share{}, space.Hash(permitKeys[0])
	if till := integer(hash["ends"]); hash["owner"] != "" && till > now {
		held[hash["owner"]] = share{integer(hash["permits"]), integer(hash["token"]), till}
	}
	for owner, till := range space.Scores(permitKeys[3]) {
		words := strings.Fields(hash["held "+owner])
		if int64(till) > now && len(words) > 1 {
			held[owner] = share{integer(words[0]), integer(words[1]), int64(till)}
		}
	}
	return held
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// limitOf returns the number of permits, if Redis has it.
func limitOf(space *keyspace.Space) (limit int64, known bool) {
	text, known := space.Hash(permitKeys[0])["limit"]
	return integer(text), known
}

// ledger models the holders and the queue, which scripts change.
type ledger struct {
	now     int64
	env     keyspace.Env
	limit   int64
	known   bool
	queued  bool // there was a queue
	held    map[string]share
	queue   []standing
	granted []string // in order
}

func readLedger(env keyspace.Env, space *keyspace.Space) *ledger {
	l := &ledger{now: env.Now, env: env, held: heldAt(space, env.Now)}
	l.limit, l.known = limitOf(space)
	for _, owner := range space.Members(permitKeys[1]) {
		l.queued = true
		words := strings.Fields(space.Hash(permitKeys[2])[owner])
		if len(words) > 3 {
			l.queue = append(l.queue, standing{owner, integer(words[1]), integer(words[0]),
				strings.HasSuffix(words[3], "+")})
		}
	}
	return l
}

func (l *ledger) used() (n int64) {
	for _, h := range l.held {
		n += h.n
	}
	return n
}

func sessionOfName(owner string) string {
	session, _, _ := strings.Cut(owner, ":")
	return session
}

// next returns the index of the first waiter that is alive and is not known to lack a subscription, or -1.
// The scripts look at 1,000 waiters at most.
func (l *ledger) next(asking string) int {
	for at, w := range l.queue {
		if w.alive >= l.now && (sessionOfName(w.owner) == asking || !w.listened ||
			l.env.Listening(channelPrefix+sessionOfName(w.owner)) > 0) {
			return at
		}
	}
	return -1
}

// serve grants permits as queue.lua must: to the waiters in the order of the queue, as long as enough are
// free for the next waiter. A waiter that wants more permits than the limit leaves the queue.
func (l *ledger) serve(asking string) {
	for {
		at := l.next(asking)
		switch {
		case at < 0:
			return
		case l.queue[at].n > l.limit:
			l.queue = slices.Delete(l.queue, at, at+1)
		case l.queue[at].n > l.limit-l.used():
			return
		default:
			l.grant(l.queue[at].owner, l.queue[at].n)
			l.queue = slices.Delete(l.queue, at, at+1)
		}
	}
}

func (l *ledger) grant(owner string, n int64) {
	l.held[owner] = share{n: n}
	l.granted = append(l.granted, owner)
}

func (l *ledger) leave(owner string) {
	delete(l.held, owner)
	l.queue = slices.DeleteFunc(l.queue, func(w standing) bool { return w.owner == owner })
}

// after applies the correct effect of a script. It returns the session that receives the reply, or "" for an
// operator.
func (l *ledger) after(p Packet, before *keyspace.Space) (asking string) {
	argv := strings.Split(p.Argv, separator)
	asking = sessionOfName(argv[0])
	held, holds := l.held[argv[0]]
	switch p.Script {
	case acquireScript:
		l.acquire(argv, before)
	case returnScript:
		l.leave(argv[0])
		if l.queued {
			l.serve(asking)
		}
	case reduceScript:
		if holds && number(held.token) == argv[1] && held.n != 1 {
			held.n = 1
			l.held[argv[0]] = held
			l.serve(asking)
		}
	case limitScript:
		asking = ""
		if l.now <= integer(argv[5]) && !(argv[1] == "1" && l.known) {
			l.limit, l.known = integer(argv[0]), true
			l.serve(asking)
		}
	case takeBackScript:
		asking = ""
		before := len(l.held)
		maps.DeleteFunc(l.held, func(_ string, h share) bool {
			return argv[2] == "" && h.n == all || argv[2] == "r" && h.n != all || argv[2] == number(h.token)
		})
		if len(l.held) < before {
			l.serve(asking)
		}
	}
	return asking
}

func (l *ledger) acquire(argv []string, before *keyspace.Space) {
	owner, n := argv[0], integer(argv[1])
	_, holds := l.held[owner]
	_, joins := l.held[argv[12]]
	hash := before.Hash(permitKeys[0])
	over := hash[owner] != "" || hash["releaser"] == owner
	if l.now > integer(argv[2]) || joins && !l.queued || holds || over {
		return
	}
	if !l.known {
		l.limit = integer(argv[11])
	}
	if n > l.limit {
		l.queue = slices.DeleteFunc(l.queue, func(w standing) bool { return w.owner == owner })
		return
	}
	if l.next(sessionOfName(owner)) < 0 && n <= l.limit-l.used() {
		l.known = true
		l.leave(owner)
		l.grant(owner, n)
		return
	}
	if alive := integer(argv[6]); alive > 0 {
		l.known = true
		at := slices.IndexFunc(l.queue, func(w standing) bool { return w.owner == owner })
		if at < 0 {
			at = len(l.queue)
			l.queue = append(l.queue, standing{owner: owner, n: n})
		}
		l.queue[at].alive = l.now + micro(alive)
	}
	l.serve(sessionOfName(owner))
}

// sound checks invariants of the keys, and returns a fault or "".
func sound(space *keyspace.Space) string {
	var sum int64
	has, leases := space.Hash(permitKeys[0]), space.Scores(permitKeys[3])
	for field, value := range has {
		owner, further := strings.CutPrefix(field, "held ")
		if !further {
			continue
		}
		n, _, _ := strings.Cut(value, " ")
		sum += integer(n)
		if _, ok := leases[owner]; !ok && len(leases) > 0 { // without members the key does not exist
			return fmt.Sprintf("%s has permits without end", owner)
		}
	}
	if sum != integer(has["shared"]) {
		return fmt.Sprintf("%s permits count as in use by further holders, and these have %d",
			has["shared"], sum)
	}
	for owner := range leases {
		if has["held "+owner] == "" {
			return fmt.Sprintf("%s is among the holders, and has nothing", owner)
		}
	}
	queue := space.Members(permitKeys[1])
	for _, owner := range queue {
		if space.Hash(permitKeys[2])[owner] == "" {
			return fmt.Sprintf("%s stands in the queue, and Redis does not know for what", owner)
		}
	}
	if len(queue) != len(space.Hash(permitKeys[2])) {
		return "Redis knows more of waiters than stand in the queue"
	}
	if len(queue) > 0 && has["queued"] == "" {
		return "the hash does not say that there is a queue"
	}
	return ""
}

// compare compares l, the correct effect of a script, with is, the actual effect. It returns a difference or
// "". was has the holders before.
func (l *ledger) compare(was map[string]share, is *ledger) string {
	for _, owner := range sorted(is.held) {
		if _, ok := l.held[owner]; !ok {
			return fmt.Sprintf("%s has permits now, which are not its own", owner)
		}
	}
	var last int64
	for owner, h := range was {
		if _, still := l.held[owner]; still {
			last = max(last, h.token)
		}
	}
	for _, owner := range append(sorted(was), l.granted...) {
		want, ok := l.held[owner]
		h, is := is.held[owner]
		switch {
		case !ok:
			continue
		case !is:
			return fmt.Sprintf("%s is to have permits now, and has none", owner)
		case h.n != want.n:
			return fmt.Sprintf("%s is to have %d permits now, and has %d", owner, want.n, h.n)
		case slices.Contains(l.granted, owner) && h.token <= last:
			return fmt.Sprintf("%s is granted permits with a token that is not above earlier ones", owner)
		case !slices.Contains(l.granted, owner) && (h.token != want.token || h.till < want.till):
			return fmt.Sprintf("%s had permits for longer, or with another token", owner)
		}
		last = max(last, h.token)
	}
	if a, b := l.living(), is.living(); !slices.Equal(a, b) {
		return fmt.Sprintf("the queue is %q, and is to be %q", b, a)
	}
	if l.known && (!is.known || is.limit != l.limit) {
		return fmt.Sprintf("there are %d permits, and are to be %d", is.limit, l.limit)
	}
	return ""
}

// living returns the waiters that are alive.
func (l *ledger) living() (owners []string) {
	for _, w := range l.queue {
		if w.alive >= l.now {
			owners = append(owners, w.owner)
		}
	}
	return owners
}

// allotted is the effect of a script on permits.
type allotted struct {
	text  string
	wrong string
}

// Observe compares the effect of a script with the correct one. The text of its result has two words for each
// grant in their order, +OWNER TOKEN, and then -OWNER 0 for each owner whose permits an operator has ended.
func (r *permitRules) Observe(env keyspace.Env, p Packet, before *keyspace.Space, did keyspace.Effect) any {
	o := allotted{}
	l, is := readLedger(env, before), readLedger(env, did.Space)
	was := maps.Clone(l.held)
	asking := l.after(p, before)
	if o.wrong = cmp.Or(sound(did.Space), l.compare(was, is)); o.wrong != "" {
		return o
	}
	var words []string
	for _, owner := range l.granted {
		token := number(is.held[owner].token)
		words = append(words, "+"+owner, token)
		if sessionOfName(owner) == asking && !strings.Contains(did.Reply, " "+owner+" "+token+" ") &&
			!(strings.HasPrefix(p.Argv, owner+separator) && strings.HasPrefix(did.Reply, "G")) {
			o.wrong = fmt.Sprintf("the reply %q does not tell %s of its grant", did.Reply, owner)
		}
	}
	if len(l.granted) > 0 && is.used() > is.limit {
		o.wrong = fmt.Sprintf("%d permits are in use, of %d", is.used(), is.limit)
	}
	for _, owner := range sorted(was) {
		if _, still := is.held[owner]; !still && p.Script == takeBackScript {
			words = append(words, "-"+owner, "0")
		}
	}
	if leaves, _, _ := strings.Cut(p.Argv, separator); p.Script == returnScript && len(l.granted) == 0 {
		first, end := "", int64(math.MaxInt64)
		for _, owner := range sorted(is.held) {
			if till := is.held[owner].till; till < end {
				first, end = owner, till
			}
		}
		if first != "" {
			o.wrong = handedOn(env, readLedger(env, before).queue, did.Published, leaves, first, end)
		}
	}
	o.text = strings.Join(words, " ")
	return o
}

// Observed checks that tokens are above all used ones, that sessions are notified of their grants, and that
// no owner is granted permits after it has left.
func (r *permitRules) Observed(v *View[taker], p Packet, seen any) {
	o := seen.(allotted)
	if o.wrong != "" {
		v.Fail("%s", o.wrong)
		return
	}
	v.forgetHints()
	v.revive(p, acquireScript, returnScript)
	words := strings.Fields(o.text)
	for ; len(words) > 0; words = words[2:] {
		owner, token := words[0][1:], integer(words[1])
		i := r.current(v, owner)
		if words[0][0] == '-' {
			if i >= 0 && v.Actors[i].Phase < over {
				v.Actors[i].Forced = true
			}
			continue
		}
		if token <= v.Granted {
			v.Fail("token %d is granted after %d was used", token-epoch, v.Granted-epoch)
		}
		session := int(owner[0] - 'A')
		gone := i < 0 || v.Actors[i].gone(v.Now)
		if v.Crashed>>session&1 == 0 && gone && !v.returns(owner) && !v.revived(owner) {
			v.Fail("%s is granted permits after it had left", owner)
		}
		byReply := p.Script != limitScript && p.Script != takeBackScript &&
			sessionOfName(owner) == sessionOfName(p.Argv)
		if !byReply && (v.LostSubs|v.Crashed)>>session&1 == 0 && !v.newsOf(owner, token) {
			v.Fail("%s is granted permits, and not told", owner)
		}
	}
}

// gone reports whether a taker has ended and has no copy of its request that may still be granted permits.
// After the end of a lease, Unlock sends its release only once, so a copy may be granted permits if that is
// lost.
func (a taker) gone(now int64) bool {
	return a.Phase == over || a.Phase == failed || a.Phase == expired && a.GaveUp && a.Late < now
}

// returns reports whether a release of the owner is in flight.
func (v *View[A]) returns(owner string) bool {
	return slices.ContainsFunc(v.net, func(n uint32) bool {
		p := v.sys.packets.values[n]
		return p.Kind <= errand && p.Script == returnScript && strings.HasPrefix(p.Argv, owner+separator)
	})
}

// newsOf reports whether a message that reports the grant is in flight.
func (v *View[A]) newsOf(owner string, token int64) bool {
	return slices.ContainsFunc(v.net, func(n uint32) bool {
		p := v.sys.packets.values[n]
		return p.Kind == news && strings.HasPrefix(p.Text, owner+" "+number(token)+" ")
	})
}

// Check checks that the actors do not hold too many permits, and that the permits of each actor are in Redis
// with a lease that lasts until its deadline. A lease ends by the server's clock, a deadline by the session's
// clock.
func (r *permitRules) Check(v *View[taker]) error {
	var sum int64
	space := v.Space()
	var held map[string]share
	for i, a := range v.Actors {
		n := r.holds(i, a)
		if n == 0 || a.Forced || v.Now >= a.Deadline {
			continue
		}
		sum += n
		if held == nil {
			held = heldAt(space, v.serverNow())
		}
		if h, ok := held[r.owner(i, a)]; !ok || h.n < n || h.token != a.Token || h.till+v.Back < a.Deadline {
			return fmt.Errorf("%s counts on permits that Redis may give to others", r.owner(i, a))
		}
	}
	if held == nil {
		return nil
	}
	limit, _ := limitOf(space)
	var used int64
	for _, h := range held {
		used += h.n
	}
	if sum > max(limit, used) || r.limit == all && sum > all {
		return fmt.Errorf("%d permits are held, of %d", sum, limit)
	}
	return nil
}

// End checks that only keys remain that are kept for a while, and that they expire. The keys of crashed
// sessions and of expired leases must expire as well.
func (r *permitRules) End(v *View[taker]) error {
	s := v.Space().Clone()
	if s.LastExpiry() == math.MaxInt64 {
		return fmt.Errorf("a key is left that never expires: %q", s.Keys())
	}
	lost := slices.ContainsFunc(v.Actors, func(a taker) bool { return a.Phase == expired })
	if v.Crashed != 0 || v.Revived != "" || lost {
		s.Purge(v.Now + micro(2*max(r.lease, r.alive)) + tick)
	}
	for _, key := range s.Keys() {
		if key != permitKeys[0] {
			return fmt.Errorf("left in Redis: %q", s.Keys())
		}
	}
	s.Purge(v.Now + micro(2*(r.lease+2*retention)))
	if len(s.Keys()) > 0 {
		return fmt.Errorf("left in Redis for too long: %q", s.Keys())
	}
	return nil
}
