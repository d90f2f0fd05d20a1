package explore

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/proof/keyspace"
)

// A model is the state of a lock. For each request, the explorer reads the state before the request, applies
// the correct effect, and compares the result with the state after the request. So this file is a
// specification of the scripts in internal/script/lua/lock. It has none of the special cases that make the
// scripts fast.
type model struct {
	now        int64 // Redis time in microseconds
	subscribed func(channel string) bool
	hash       map[string]string
	hasPermits bool  // a holder can have some of the permits; false: each holder has protocol.All
	limit      int64 // number of permits; 0: neither Redis nor the request has it
	limitKnown bool  // Redis has the limit
	hadQueue   bool
	holders    map[string]share // holders whose lease has not ended, by owner field
	queue      []place

	// apply sets the following.
	channels string   // beginning of the names of all sessions' channels
	session  string   // session that sent the request and is notified by the reply; "": an operator
	attempt  string   // attempt of an acquire request; counts as alive, even if its entry has a past time
	granted  []string // owner fields of the attempts that get permits by this request, in their order
	stays    bool     // after this Unlock, permits stay taken, because of HoldAtLeast
}

// A share is the permits and the lease of one holder.
type share struct {
	permits, token int64
	ends           int64 // Redis time in microseconds at which the lease ends
}

// A place is the place of a waiter in the queue.
type place struct {
	owner         string
	permits       int64
	alive         int64 // Redis time in microseconds until which the waiter counts as alive
	lease         int64 // lease that the waiter wants, in milliseconds
	hasSubscribed bool  // the session had a subscription when the waiter last sent its request
}

// staysTaken is the last character of the owner field of permits that stay taken after an Unlock.
const staysTaken = "~"

// newModel reads the lock whose hash has this key.
func newModel(env keyspace.Env, space *keyspace.Space, key string) *model {
	m := &model{now: env.Now, subscribed: func(channel string) bool { return env.Listening(channel) > 0 },
		hash: space.Hash(key), holders: map[string]share{}}
	for _, kind := range []string{protocol.ReadWrite, protocol.Semaphore} {
		m.hasPermits = m.hasPermits || strings.Contains(key, ":"+kind+":{")
	}
	permits := int64(protocol.All)
	if m.hasPermits {
		m.limit, m.limitKnown = number(m.hash["limit"]), m.hash["limit"] != ""
		permits = number(m.hash["permits"])
	} else {
		m.limit = protocol.All
	}
	if ends := number(m.hash["ends"]); m.hash["owner"] != "" && ends > env.Now {
		m.holders[m.hash["owner"]] = share{permits, number(m.hash["token"]), ends}
	}
	for owner, ends := range space.Scores(key + ":h") {
		words := strings.Fields(m.hash["held "+owner])
		if int64(ends) > env.Now && len(words) > 1 {
			m.holders[owner] = share{number(words[0]), number(words[1]), int64(ends)}
		}
	}
	for _, owner := range space.Members(key + ":q") {
		m.hadQueue = true
		p := place{owner: owner}
		if words := strings.Fields(space.Hash(key + ":w")[owner]); len(words) > 3 {
			p.alive, p.permits, p.lease = number(words[0]), number(words[1]), number(words[2])
			p.hasSubscribed = strings.HasSuffix(words[3], "+")
		}
		if !m.hasPermits { // the entry has the number of goroutines instead
			p.permits = protocol.All
		}
		m.queue = append(m.queue, p)
	}
	return m
}

func (m *model) used() (n int64) {
	for _, s := range m.holders {
		n += s.permits
	}
	return n
}

// next returns the index of the first waiter that may be served, or -1 if there is none. Such a waiter is
// alive, and its session is not known to lack a subscription. The attempt that sent the request counts as
// alive, and its session needs no subscription.
func (m *model) next() int {
	return slices.IndexFunc(m.queue, func(p place) bool {
		alive := p.alive >= m.now || p.owner == m.attempt
		return alive && m.reaches(p)
	})
}

// reaches reports whether a grant can be reported to the session of a waiter, by the reply or by a message.
func (m *model) reaches(p place) bool {
	of := sessionOf(p.owner)
	return of == m.session || !p.hasSubscribed || m.subscribed(m.channels+of)
}

// serve grants permits to the waiters in the order of the queue, as long as there are enough for the next
// waiter. A waiter that wants more than the limit is removed from the queue. After a grant of all permits,
// serve looks at no further waiter. If the limit is not known, serve does nothing.
func (m *model) serve() {
	if m.limit == 0 {
		return
	}
	for at := m.next(); at >= 0; at = m.next() {
		p := m.queue[at]
		switch {
		case p.permits > m.limit:
		case p.permits > m.limit-m.used():
			return
		default:
			m.holders[p.owner] = share{permits: p.permits, ends: m.now + 1000*p.lease}
			m.granted = append(m.granted, p.owner)
		}
		m.queue = slices.Delete(m.queue, at, at+1)
		if p.permits == m.limit {
			return
		}
	}
}

// leave removes an attempt from the queue.
func (m *model) leave(owner string) {
	m.queue = slices.DeleteFunc(m.queue, func(p place) bool { return p.owner == owner })
}

// apply applies the correct effect of a request. A correct reply begins with one of the characters that apply
// returns. If apply returns "", any reply is right. The headers of the scripts describe the arguments:
// argv[0] is ARGV[1].
func (m *model) apply(c *command) (replies string) {
	argv := slices.Concat(c.argv, make([]string, 13)) // missing arguments are empty
	switch c.name() {
	case "acquire":
		m.session, m.attempt, m.channels = sessionOf(argv[0]), argv[0], argv[7]
		return m.acquire(argv)
	case "release":
		m.session, m.channels = sessionOf(argv[0]), argv[2]
		return m.release(argv)
	case "renew":
		s, holds := m.holders[argv[0]]
		if !holds || decimal(s.token) != argv[1] {
			return "L"
		}
		s.ends = max(s.ends, m.now+1000*number(argv[4]))
		m.holders[argv[0]] = s
		return "K"
	case "limit":
		m.channels = argv[2]
		if m.now > number(argv[5]) || argv[1] == "1" && m.limitKnown {
			return "VNS"
		}
		m.limit, m.limitKnown = number(argv[0]), true
		m.serve()
		return "S"
	case "force":
		m.channels = argv[0]
		before := len(m.holders)
		maps.DeleteFunc(m.holders, func(_ string, s share) bool {
			all := s.permits == protocol.All
			return argv[2] == "" && all || argv[2] == "r" && !all || argv[2] == decimal(s.token)
		})
		forced := before - len(m.holders)
		if forced > 0 {
			m.serve()
		}
		return decimal(int64(forced))
	}
	return ""
}

// acquire applies the correct effect of acquire.lua.
func (m *model) acquire(argv []string) (replies string) {
	owner, lease := argv[0], 1000*number(argv[3])
	if m.now > number(argv[2]) {
		return "V"
	}
	wants := int64(protocol.All)
	if m.hasPermits {
		wants = number(argv[1])
		if !m.limitKnown {
			m.limit = number(argv[11])
		}
	}
	if s, holds := m.holders[owner]; holds {
		s.ends = max(s.ends, m.now+lease)
		m.holders[owner] = s
		return "G"
	}
	if m.hash[owner] != "" || m.hash["releaser"] == owner { // a stale copy
		return "S"
	}
	if s, joins := m.holders[argv[12]]; joins && !m.hadQueue {
		s.ends = max(s.ends, m.now+lease)
		m.holders[argv[12]] = s
		return "K"
	}
	if m.hasPermits && (wants > m.limit ||
		m.limitKnown && argv[11] != decimal(m.limit) && m.hash["limiter"] == "") {
		m.leave(owner)
		if m.hadQueue {
			m.serve()
		}
		return "N"
	}
	at := slices.IndexFunc(m.queue, func(p place) bool { return p.owner == owner })
	waiterTimeout, queued := number(argv[6]), at >= 0
	if !queued {
		at = len(m.queue)
		m.queue = append(m.queue, place{owner: owner})
	}
	if waiterTimeout > 0 {
		m.queue[at].alive = m.now + 1000*waiterTimeout
	}
	m.queue[at].permits, m.queue[at].lease = wants, lease/1000
	m.serve()
	if slices.Contains(m.granted, owner) {
		m.limitKnown = m.hasPermits
		return "G"
	}
	if waiterTimeout == 0 && !queued { // a try
		m.leave(owner)
	} else {
		m.limitKnown = m.limitKnown || m.hasPermits && waiterTimeout > 0
	}
	return "Q"
}

// release applies the correct effect of release.lua.
func (m *model) release(argv []string) (replies string) {
	owner := argv[0]
	s, holds := m.holders[owner]
	matches := holds && (argv[1] == "" || argv[1] == decimal(s.token))
	switch {
	case matches:
		replies = "R"
	case holds || argv[1] == "":
		replies = "L"
	case !m.hasPermits:
		replies = "L"
		if t := number(argv[1]); t <= number(m.hash["released"]) && t > number(m.hash["lost"]) {
			replies = "R"
		}
	}
	if argv[7] != "" { // a writer downgrades
		if !matches || s.permits != protocol.All {
			return replies
		}
		s.permits = number(argv[7])
		m.holders[owner] = s
		m.serve()
		return replies
	}
	delete(m.holders, owner)
	if matches && argv[6] != "" {
		m.stays = true
		s.ends = m.now + 1000*max(1, number(argv[6]))
		m.holders[owner+staysTaken] = s
	}
	m.leave(owner)
	m.serve()
	return replies
}

// difference returns a difference between the model and the lock after a request, or "" if there is none. The
// map before has the holders before the request.
func (m *model) difference(before map[string]share, after *model) string {
	for _, owner := range slices.Sorted(maps.Keys(after.holders)) {
		if _, ok := m.holders[owner]; !ok {
			return fmt.Sprintf("%s has the lock now, and must not", owner)
		}
	}
	var last int64 // highest token of the earlier holders that remain, and of the grants that were compared
	for owner, s := range before {
		if _, still := m.holders[owner]; still {
			last = max(last, s.token)
		}
	}
	for _, owner := range append(slices.Sorted(maps.Keys(m.holders)), m.granted...) {
		want := m.holders[owner]
		s, has := after.holders[owner]
		granted, taken := slices.Contains(m.granted, owner), strings.HasSuffix(owner, staysTaken)
		switch {
		case !has:
			return fmt.Sprintf("%s must have the lock now, and has not", owner)
		case s.permits != want.permits:
			return fmt.Sprintf("%s must have %d permits now, and has %d", owner, want.permits, s.permits)
		case taken && s.ends != want.ends:
			return fmt.Sprintf("%s must be taken until %d, and is until %d", owner, want.ends, s.ends)
		case granted && s.ends > want.ends:
			return fmt.Sprintf("%s is granted the lock for longer than it asked for", owner)
		case !granted && !taken && (s.token != want.token || s.ends < want.ends):
			return fmt.Sprintf("%s has another token now, or a lease that ends too early", owner)
		}
	}
	for _, owner := range m.granted {
		if token := after.holders[owner].token; token <= last {
			return fmt.Sprintf("%s gets a token that is not higher than earlier ones", owner)
		}
		last = max(last, after.holders[owner].token)
	}
	if want, is := m.living(), after.living(); !slices.Equal(want, is) {
		return fmt.Sprintf("the queue must be %q, and is %q", want, is)
	}
	if m.limitKnown && (!after.limitKnown || after.limit != m.limit) {
		return fmt.Sprintf("the limit must be %d, and is %d", m.limit, after.limit)
	}
	return ""
}

// living returns the owner fields of the waiters that are alive.
func (m *model) living() (owners []string) {
	for _, p := range m.queue {
		if p.alive >= m.now {
			owners = append(owners, p.owner)
		}
	}
	return owners
}

// notified checks that a request notifies the sessions of new holders, and the waiters that must know when
// the lease ends. It returns a text about the first missing notification, or "" if there is none.
func (m *model) notified(c *command, did keyspace.Effect, before []place, after *model) string {
	published := func(owner, rest string) bool {
		return slices.ContainsFunc(did.Published, func(msg keyspace.Message) bool {
			return msg.Channel == m.channels+sessionOf(owner) && strings.HasPrefix(msg.Text, owner+" "+rest)
		})
	}
	for _, owner := range m.granted {
		token := decimal(after.holders[owner].token)
		switch {
		case owner == m.attempt:
			if words := strings.Fields(did.Reply); len(words) < 3 || words[2] != token {
				return fmt.Sprintf("the reply %q is not that %s has the lock", did.Reply, owner)
			}
		case sessionOf(owner) == m.session:
			if !strings.Contains(did.Reply, " "+owner+" "+token+" ") {
				return fmt.Sprintf("the reply %q is not that %s has the lock", did.Reply, owner)
			}
		case m.subscribed(m.channels+sessionOf(owner)) && !published(owner, token+" "):
			return fmt.Sprintf("%s is granted the lock, and gets no message", owner)
		}
	}
	if c.name() == "release" && len(m.granted) == 0 && len(after.holders) > 0 {
		return m.leaseEnd(c.argv[0], before, after, func(owner string) bool { return published(owner, "") })
	}
	return ""
}

// leaseEnd returns a text about a waiter that must be notified of the end of the present lease, and is not.
// It returns "" if there is none. If the first waiter leaves the queue and the lock stays held, the new first
// waiter must be notified. If permits stay taken after an Unlock, the first waiters of two sessions must be
// notified. Dead waiters, waiters that have lost their subscription, and waiters of the holder's session do
// not count here. A waiter needs no message if its session never had a subscription, or if it sends a
// heartbeat before the end of the lease.
func (m *model) leaseEnd(
	leaves string, before []place, after *model, published func(owner string) bool,
) string {
	first, ends := "", int64(math.MaxInt64)
	for _, owner := range slices.Sorted(maps.Keys(after.holders)) {
		if s := after.holders[owner]; s.ends < ends {
			first, ends = owner, s.ends
		}
	}
	from := slices.IndexFunc(before, func(p place) bool { return p.owner == leaves })
	if from < 0 && !m.stays {
		return ""
	}
	var sessions []string
	for at, p := range before {
		of := sessionOf(p.owner)
		subscribed := m.subscribed(m.channels + of)
		isHolder := of == sessionOf(first) && !strings.HasSuffix(first, staysTaken)
		switch {
		case p.owner == leaves || p.alive < m.now || isHolder || p.hasSubscribed && !subscribed ||
			slices.Contains(sessions, of):
			continue
		case !m.stays && (at < from || !subscribed):
			return ""
		}
		// Scripts round to milliseconds.
		if subscribed && ends+1000 < p.alive && !published(p.owner) {
			return fmt.Sprintf("%s leaves, and %s is not notified of the end of the lease", leaves, p.owner)
		}
		if sessions = append(sessions, of); !m.stays || len(sessions) == 2 {
			return ""
		}
	}
	return ""
}

// faults returns texts about the inconsistencies of the keys of a lock. keep is the time in milliseconds for
// which the hash must outlive each lease.
func faults(space *keyspace.Space, key string, keep int64) (all []string) {
	hash, queue, waiters := space.Hash(key), space.Members(key+":q"), space.Hash(key+":w")
	lives, queued := number(hash["lives"]), number(hash["queued"])
	leases := space.Scores(key + ":h")
	fault := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	var shared int64
	for _, field := range slices.Sorted(maps.Keys(hash)) {
		if owner, further := strings.CutPrefix(field, "held "); further {
			permits, _, _ := strings.Cut(hash[field], " ")
			shared += number(permits)
			ends, ok := leases[owner]
			fault(!ok, "%s has permits without a lease", owner)
			fault(ok && lives < int64(ends)+1000*keep, "the hash does not outlive the lease of %s", owner)
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(leases)) {
		fault(hash["held "+owner] == "", "%s has a lease without permits", owner)
	}
	fault(shared != number(hash["shared"]), "the number of permits of further holders is wrong")
	fault(hash["owner"] != "" && lives < number(hash["ends"])+1000*keep,
		"the hash does not outlive the lease")
	fault(len(hash) > 0 && space.Expires(key) < max(1, lives/1000),
		"the hash says that it lives for longer than it does")
	fault(len(queue) != len(waiters), "the queue and the hash of the waiters have other attempts")
	fault(len(queue) == 0 && queued != 0, "the hash says that there is a queue")
	for _, key := range []string{key + ":q", key + ":w"} {
		exists := space.Members(key) != nil || space.Hash(key) != nil
		fault(exists && space.Expires(key) < max(1, queued/1000),
			"the hash says that %s lives for longer than it does", key)
	}
	for _, owner := range queue {
		words := strings.Fields(waiters[owner])
		fault(len(words) == 0, "%s has no entry", owner)
		fault(len(words) > 0 && number(words[0]) > queued, "%s waits for longer than the hash says", owner)
	}
	return all
}

// newFault returns a text about an inconsistency that a request has caused, or "" if there is none. If the
// keys were inconsistent before, an operator or the expiry of a key is the cause.
func newFault(c *command, reply string, before, after *keyspace.Space) string {
	key, owner := c.keys[0], c.argv[0]
	keep := map[string]int{"acquire": 5, "release": 3, "renew": 5, "limit": 3, "force": 1}[c.name()]
	were := faults(before, key, number(c.argv[keep]))
	for _, fault := range faults(after, key, number(c.argv[keep])) {
		if !slices.Contains(were, fault) {
			return fault
		}
	}
	hash := after.Hash(key)
	ends := c.name() == "release" && len(c.argv) < 8 || c.name() == "renew" && reply == "L"
	if ends && (hash["owner"] == owner || hash["held "+owner] != "") {
		return "the hash still names the attempt, whose lease would continue if the clock were set back"
	}
	return ""
}

// A verdict is the result of comparing a request with the model.
type verdict struct {
	wrong   string  // text about the first difference, or "" if there is none
	granted []int64 // tokens of the new grants, in the order of the grants
	forced  []share // the grants that an operator has ended by this request
}

// judge compares the effect of a request with the correct effect.
func judge(env keyspace.Env, c *command, before *keyspace.Space, did keyspace.Effect) (v verdict) {
	if did.Err != nil {
		v.wrong = did.Err.Error()
		return v
	}
	key := c.keys[0]
	is, after := newModel(env, before, key), newModel(env, did.Space, key)
	holders, queue := maps.Clone(is.holders), slices.Clone(is.queue)
	replies := is.apply(c)
	v.wrong = cmp.Or(is.difference(holders, after), newFault(c, did.Reply, before, did.Space),
		is.notified(c, did, queue, after))
	if v.wrong == "" && replies != "" && (did.Reply == "" || !strings.Contains(replies, did.Reply[:1])) {
		v.wrong = fmt.Sprintf("the reply is %q, and must begin with %s", did.Reply, replies)
	}
	for _, owner := range is.granted {
		v.granted = append(v.granted, after.holders[owner].token)
	}
	if c.name() == "force" {
		for owner, s := range holders {
			if _, still := after.holders[owner]; !still {
				v.forced = append(v.forced, s)
			}
		}
	}
	return v
}

// sessionOf returns the session of an owner field.
func sessionOf(owner string) string {
	session, _, _ := strings.Cut(owner, ":")
	return session
}

func decimal(n int64) string { return fmt.Sprint(n) }
