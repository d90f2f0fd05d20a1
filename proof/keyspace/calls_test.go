package keyspace

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// A caller makes random requests for scripts. Many are requests that a session could send in the present
// state, and others are nonsense.
type caller struct {
	*rand.Rand
	now    int64
	space  *Space
	keys   []string
	fields []string
}

// kind is a kind of lock, with random calls of its scripts.
type kind struct {
	name   string
	keys   []string
	fields []string // some fields of hashes of the kind
	calls  []call
}

type call struct {
	script string
	argv   func(c *caller) []string
	keys   func(c *caller) []string // nil for the keys of the kind
	often  int                      // weight of the call; 0 means 1
}

// call picks a random call of the kind.
func (k kind) call(c *caller) call {
	var all []call
	for _, one := range k.calls {
		for range max(1, one.often) {
			all = append(all, one)
		}
	}
	return pick(c, all...)
}

func pick[T any](c *caller, of ...T) T { return of[c.IntN(len(of))] }

// rare returns true in about one of n calls.
func (c *caller) rare(n int) bool { return c.IntN(n) == 0 }

func number64(n int64) string { return strconv.FormatInt(n, 10) }

var nonsense = []string{"", "0", "-1", "x", "1e3", "0x10", "010", " 7", "7 ", "1.5", "9e15",
	"9007199254740993", "99999999999999999999", "inf", "-", "t", "A", "a b", "\xff,=\n", "A:1:2",
	"9000000000000001"}

func (c *caller) session() string { return pick(c, "A", "B", "C") }

func (c *caller) owner() string { return c.session() + ":" + strconv.Itoa(1+c.IntN(3)) }

// time returns a time near the present time, or a stored number. It can be the deadline of a request, or the
// end of a lease.
func (c *caller) time() string {
	switch c.IntN(6) {
	case 0:
		return number64(c.now)
	case 1:
		return number64(c.now - 1 - c.Int64N(5000))
	case 2:
		return number64(c.now - c.Int64N(60e6))
	case 3:
		return c.stored(isNumber)
	}
	return number64(c.now + c.Int64N(5e6))
}

// deadline returns the time after which a request is void. Most of these times are in the future.
func (c *caller) deadline() string {
	if c.rare(6) {
		return c.time()
	}
	return number64(c.now + c.Int64N(5e6))
}

func (c *caller) late() string { return pick(c, "0", "0", c.time()) }

func (c *caller) lease() string {
	return pick(c, "1", "50", "3000", "3000", "30000", "30000", strconv.Itoa(1+c.IntN(5000)))
}

func (c *caller) keep() string { return pick(c, "1", "15000", "15000", "86400000") }

// stored returns a stored text for which the function is returns true. It can be a whole string, a word of a
// string, or a score. If there is no such text, stored returns nonsense.
func (c *caller) stored(is func(string) bool) string {
	var all []string
	add := func(s string) {
		if is(s) {
			all = append(all, s)
		}
	}
	for _, name := range c.space.Keys() {
		k := c.space.keys[name]
		for _, f := range sorted(k.hash) {
			add(f)
			for _, word := range strings.Fields(k.hash[f]) {
				add(word)
			}
		}
		for _, m := range k.members() {
			add(m)
			add(decimal(k.scores[m]))
		}
	}
	if len(all) == 0 {
		return pick(c, nonsense...)
	}
	return pick(c, all...)
}

func isNumber(s string) bool {
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil && len(s) > 3
}

// token returns a stored number, a number near to it, or the present time.
func (c *caller) token() string {
	n, _ := strconv.ParseInt(c.stored(isNumber), 10, 64)
	return pick(c, number64(n), number64(n), number64(n), number64(n+999), number64(n-999),
		number64(n+c.Int64N(1000)), number64(c.now))
}

func (c *caller) about() string { return pick(c, "", "me", "a  b", "é\xff \n+ /") }

func (c *caller) nonce() string { return pick(c, "", "n1", "n2") }

func (c *caller) channels() string { return "c:" }

func (c *caller) told() string { return pick(c, "0", "1", "1", "2") }

func (c *caller) small() string { return strconv.Itoa(c.IntN(4)) }

var (
	lockKeys   = []string{"{k}", "{k}:q", "{k}:w"}
	lockFields = []string{"owner", "ends", "token", "floor", "count", "change", "info", "lingers", "released",
		"lost", "releaser", "ticket", "queued", "lives", "refused", "leader"}
)

func queueLock(c *caller) []string {
	return []string{c.owner(), c.small(), c.deadline(), c.lease(), c.about(), c.keep(),
		pick(c, "0", "1", "1000", "3000", "3000"), c.channels(), c.nonce(), c.told()}
}

// keeping adds an argument to half of the calls. With this argument, the session may keep the grant while no
// goroutine uses it.
func keeping(argv func(c *caller) []string) func(c *caller) []string {
	return func(c *caller) []string {
		if c.rare(2) {
			return argv(c)
		}
		return append(argv(c), pick(c, "0", "1000000"))
	}
}

func queueRelease(c *caller) []string {
	return []string{c.owner(), pick(c, "", "", c.token()), c.channels(), c.keep(), c.late(),
		pick(c, "0", "", c.token())}
}

// holderOr usually returns the owner of a lock, even if the lease has ended. Sometimes it returns another
// owner.
func holderOr(c *caller, key string) string {
	if owner, ok := c.space.Hash(key)["owner"]; ok && !c.rare(3) {
		return owner
	}
	return c.owner()
}

func sorted(hash map[string]string) []string {
	fields := make([]string, 0, len(hash))
	for f := range hash {
		fields = append(fields, f)
	}
	slices.Sort(fields)
	return fields
}

func tokenOr(c *caller, key string) string {
	if t, ok := c.space.Hash(key)["token"]; ok && !c.rare(4) {
		return t
	}
	return c.token()
}

var (
	permitFields = slices.Concat(lockFields,
		[]string{"permits", "shared", "limit", "limiter", "lingerers", "held A:1", "held B:2", "held C:1~"})
	latchFields = []string{"n", "r", "p:p", "e:r1"}
)

var kinds = []kind{
	{"queue", lockKeys, lockFields, []call{
		{script: "lock/acquire", argv: keeping(queueLock), often: 6},
		{script: "lock/release", often: 3, argv: func(c *caller) []string {
			argv := queueRelease(c)
			if argv[0] = holderOr(c, "{k}"); c.rare(2) {
				argv[1] = tokenOr(c, "{k}")
			}
			return argv
		}, keys: allOrHash},
		{script: "lock/release", argv: queueRelease},
		{script: "lock/release", argv: func(c *caller) []string { // the lock stays taken
			argv := queueRelease(c)
			argv[0], argv[1] = holderOr(c, "{k}"), tokenOr(c, "{k}")
			argv[5] = argv[1] // the last token used
			return append(argv[:6], pick(c, "0", "1", "700", c.lease()))
		}, keys: allOrHash},
		{script: "lock/force", argv: func(c *caller) []string {
			return []string{c.channels(), c.keep(), pick(c, "", tokenOr(c, "{k}"))}
		}},
		{script: "lock/inspect", argv: func(*caller) []string { return nil }},
		{script: "lock/renew", argv: renewal, keys: hashAlone},
	}},
	{"election", lockKeys, lockFields, []call{
		{script: "lock/acquire", argv: queueLock, often: 3},
		{script: "lock/release", argv: func(c *caller) []string {
			argv := queueRelease(c)
			argv[0], argv[1] = holderOr(c, "{k}"), tokenOr(c, "{k}")
			return argv
		}},
		{script: "election/proclaim", often: 4, keys: hashAlone, argv: func(c *caller) []string {
			return []string{holderOr(c, "{k}"), tokenOr(c, "{k}"), c.small(), c.about(), c.keep()}
		}},
		{script: "election/leader", often: 3, keys: hashAlone, argv: func(c *caller) []string {
			return []string{pick(c, "", "c:"+c.session())}
		}},
		{script: "election/retract", keys: hashAlone, argv: func(c *caller) []string {
			return []string{holderOr(c, "{k}"), tokenOr(c, "{k}")}
		}},
	}},
	{"permit", []string{"{k}", "{k}:q", "{k}:w", "{k}:h"}, permitFields, []call{
		{script: "lock/acquire", argv: permitAcquire, often: 6},
		{script: "lock/release", often: 3, argv: func(c *caller) []string {
			owner := permitHolder(c)
			return []string{owner, pick(c, "", permitToken(c, owner)), c.channels(), c.keep(), c.late(),
				pick(c, "", c.token())}
		}},
		{script: "lock/release", argv: func(c *caller) []string { // the permits stay taken
			owner := permitHolder(c)
			return []string{owner, permitToken(c, owner), c.channels(), c.keep(), c.late(), "",
				pick(c, "1", "50", "3000")}
		}},
		{script: "lock/release", argv: func(c *caller) []string { // a writer becomes a reader
			owner := permitHolder(c)
			return []string{owner, permitToken(c, owner), c.channels(), c.keep(), "0", c.token(), "", "1"}
		}},
		{script: "lock/renew", argv: func(c *caller) []string {
			owner := permitHolder(c)
			return []string{owner, permitToken(c, owner), "0", "1", c.lease(), c.keep(), "0"}
		}},
		{script: "lock/limit", argv: func(c *caller) []string {
			return []string{pick(c, "0", "1", "2", "3", "1000000000"), pick(c, "", "1"), c.channels(),
				c.keep(), "i" + c.small(), c.deadline()}
		}},
		{script: "lock/force", argv: func(c *caller) []string {
			return []string{c.channels(), c.keep(), pick(c, "", "r", permitToken(c, permitHolder(c)))}
		}},
		{script: "lock/inspect", argv: func(*caller) []string { return nil }},
	}},
	{"latch", []string{"{k}"}, latchFields, []call{
		{script: "latch/set", often: 2, argv: func(c *caller) []string {
			return []string{c.run(), c.deadline(), pick(c, "1", "2", "3", "3"),
				pick(c, "1", "200000", "86400000")}
		}},
		{script: "latch/count", argv: func(c *caller) []string {
			return []string{c.run(), c.deadline()}
		}},
		{script: "latch/delete", argv: func(c *caller) []string {
			return []string{c.run(), c.deadline()}
		}},
		{script: "latch/join", often: 4, argv: func(c *caller) []string {
			return []string{c.run(), c.deadline(), c.party(), c.lease()}
		}},
		{script: "latch/arrive", often: 2, argv: func(c *caller) []string {
			name, id := c.joined()
			return []string{id, name, c.current()}
		}},
		{script: "latch/leave", argv: func(c *caller) []string {
			name, id := c.joined()
			return []string{id, name, c.late()}
		}},
		{script: "latch/renew", argv: func(c *caller) []string {
			name, id := c.joined()
			return []string{id, name, c.lease()}
		}},
		{script: "latch/inspect", argv: func(*caller) []string { return nil }},
		{script: "latch/look", argv: func(c *caller) []string { return []string{pick(c, "", c.current())} }},
	}},
}

// hashAlone returns the keys of a request that needs only the hash of the lock.
func hashAlone(*caller) []string { return lockKeys[:1] }

// allOrHash returns the keys of a release. About one of three releases has only the hash, as while a slot
// moves.
func allOrHash(c *caller) []string { return lockKeys[:pick(c, 3, 3, 1)] }

func renewal(c *caller) []string {
	floor := pick(c, "0", c.token())
	return []string{holderOr(c, "{k}"), tokenOr(c, "{k}"), c.small(), c.small(), pick(c, "0", c.lease()),
		c.keep(), floor}
}

// writable replaces a large number of permits by 1. Redis and the key space format such numbers in different
// ways, see lualib.go.
func writable(argv []string) {
	if f, _ := numeral(argv[1]); math.Abs(f) >= 1e14 {
		argv[1] = "1"
	}
}

func permitAcquire(c *caller) []string {
	return []string{c.owner(), pick(c, "1", "1", "2", "3", "1000000000"), c.deadline(), c.lease(), c.about(),
		c.keep(), pick(c, "0", "1", "1000", "3000", "3000"), c.channels(), c.nonce(), c.told(),
		pick(c, "", "", "1", "5000000"), pick(c, "1", "2", "3", "1000000000"),
		pick(c, "", "", permitHolder(c))}
}

func permitHolder(c *caller) string {
	all := c.space.Members("{k}:h")
	if owner := c.space.Hash("{k}")["owner"]; owner != "" {
		all = append(all, owner)
	}
	if len(all) > 0 && !c.rare(3) {
		return pick(c, all...)
	}
	return c.owner()
}

func permitToken(c *caller, owner string) string {
	hash := c.space.Hash("{k}")
	words := strings.Fields(hash["held "+owner])
	switch {
	case c.rare(4):
	case hash["owner"] == owner && hash["token"] != "":
		return hash["token"]
	case len(words) > 1:
		return words[1]
	}
	return c.token()
}

func (c *caller) run() string {
	return pick(c, "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", c.current())
}

func (c *caller) party() string { return pick(c, "p", "q") }

func (c *caller) current() string {
	if r, ok := c.space.Hash("{k}")["r"]; ok && !c.rare(4) {
		return r
	}
	return "r" + strconv.Itoa(1+c.IntN(8))
}

// joined usually returns a party that has joined a latch, and the id with which it has joined.
func (c *caller) joined() (name, id string) {
	name, id = c.party(), c.run()
	for _, f := range sorted(c.space.Hash("{k}")) {
		if party, ok := strings.CutPrefix(f, "p:"); ok && c.rare(2) {
			name = party
		}
	}
	if _, joined, ok := strings.Cut(c.space.Hash("{k}")["p:"+name], " "); ok && !c.rare(4) {
		id = strings.TrimSuffix(joined, " R")
	}
	return name, id
}
