package keyspace

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/script"
)

var (
	sequences = flag.Int("sequences", enough, "how many random sequences of calls are compared with a server")
	from      = flag.Uint64("from", 1, "the first of them")
)

const (
	enough    = 320
	callsEach = 20
)

// A loaded is a script that is compiled for the key space, and loaded on the server.
type loaded struct {
	script *Script
	digest string
}

// A comparison runs the same scripts on a key space and on a server.
type comparison struct {
	server  *server
	scripts map[string]loaded
	replies map[string]map[string]int // number of each reply of each script
}

func newComparison(t *testing.T) *comparison {
	t.Helper()
	c := &comparison{newServer(t), map[string]loaded{}, map[string]map[string]int{}}
	for _, name := range script.Names() {
		if path.Dir(name) == "redisson" {
			continue // scripts of Redisson use commands that the key space lacks
		}
		text := script.Text(name)
		compiled, err := Compile("script", text)
		if err != nil {
			t.Fatal(err)
		}
		c.scripts[name] = loaded{compiled, c.server.load(t, shimmed(text))}
		c.replies[name] = map[string]int{}
	}
	return c
}

// run makes a sequence of random calls. It returns the first difference between the key space and the server.
func (c *comparison) run(t *testing.T, k kind, seed uint64) error {
	w := &caller{Rand: rand.New(rand.NewPCG(seed, 0)), now: start + int64(seed%1e6),
		space: New(), keys: k.keys, fields: k.fields}
	var story []string
	plausible := w.rare(2) // without changed data and without nonsense
	for range callsEach {
		if !plausible && w.rare(4) {
			w.disturb()
		}
		w.pass()
		call := k.call(w)
		keys, argv := k.keys, call.argv(w)
		if call.keys != nil {
			keys = call.keys(w)
		}
		if !plausible && len(argv) > 0 && w.rare(6) {
			if argv[w.IntN(len(argv))] = pick(w, nonsense...); call.script == "lock/acquire" {
				writable(argv)
			}
		}
		s := c.scripts[call.script]
		before := w.space.Encode()
		did := s.script.Run(w.space, Env{Now: w.now, Listening: listening}, keys, argv)
		got := outcomeOf(did, w.now)
		want := c.server.run(t, s.digest, w.space, w.now, keys, argv)
		story = append(story, fmt.Sprintf("at %d %s %q %q: %s", w.now, call.script, keys, argv, got.reply))
		if got != want {
			return fmt.Errorf("%s\nbefore:\n%v\nthe key space:\n%v\nthe server:\n%v",
				strings.Join(story, "\n"), outcomeOf(Effect{Space: w.space}, w.now).space, got, want)
		}
		replica := s.script.Run(w.space, Env{Now: w.now, Listening: listening, Replica: true}, keys, argv)
		if replica.Err == nil && !strings.HasPrefix(replica.Reply, "V ") {
			return fmt.Errorf("%s\na replica replied %q", strings.Join(story, "\n"), replica.Reply)
		}
		if w.space.Encode() != before {
			return fmt.Errorf("%s\nchanged the space that it was run on", strings.Join(story, "\n"))
		}
		c.note(call.script, did)
		w.space = did.Space
	}
	return nil
}

func (c *comparison) note(name string, did Effect) {
	reply, _, _ := strings.Cut(did.Reply, " ")
	if did.Err != nil {
		reply = "error"
		if strings.HasPrefix(did.Err.Error(), "LOCKLINE ") {
			reply = "refusal"
		}
	} else if strings.HasPrefix(reply, "{") {
		reply = "JSON"
	}
	if len(did.Published) > 0 {
		reply += "+news"
	}
	c.replies[name][reply]++
}

// pass advances the clock, often by a little. It may also set the clock to a time near a stored time or the
// expiry of a key, or set it back.
func (c *caller) pass() {
	switch c.IntN(12) {
	case 0, 1, 2, 3, 4:
		c.now += c.Int64N(1000)
	case 5:
		c.now += c.Int64N(5e6)
	case 6:
		c.now -= c.Int64N(3000)
	case 7: // near the expiry of a key
		if k := c.space.keys[pick(c, c.keys...)]; k != nil && k.expires != 0 && k.expires < c.now/1000+1e6 {
			c.now = (k.expires+pick[int64](c, -1, 0, 0, 1))*1000 + c.Int64N(1000)
		}
	case 8: // near a stored time
		if n, exact, ok := strtod(c.stored(isNumber)); ok && exact && math.Abs(n-float64(c.now)) < 1e9 {
			c.now = int64(n) + pick[int64](c, -1, 0, 1)
		}
	}
}

// disturb changes stored data, as a user could by hand.
func (c *caller) disturb() {
	space := c.space.Clone()
	c.space = space
	name := pick(c, c.keys...)
	x := &execution{space: space, env: Env{Now: math.MinInt64}} // at a time at which no key has expired
	k := x.write(name)
	if k == nil {
		k = &key{hash: map[string]string{}}
		if c.rare(2) {
			k = &key{scores: map[string]float64{}}
		}
		space.keys[name] = k
	}
	switch c.IntN(8) {
	case 0:
		space.Delete(name)
		return
	case 1:
		k.expires = 0
	case 2:
		k.expires = c.now/1000 + pick[int64](c, -1, 0, 1, 2, 1000, 2000)
	case 3:
		k.hash, k.scores = k.scoresAsHash(), k.hashAsScores() // of the other type
	default:
		c.spoil(k)
	}
	x.drop(name, k)
}

func (k *key) scoresAsHash() map[string]string {
	if k.hash != nil {
		return nil
	}
	hash := map[string]string{}
	for m, f := range k.scores {
		hash[m] = decimal(f)
	}
	return hash
}

func (k *key) hashAsScores() map[string]float64 {
	if k.scores != nil {
		return nil
	}
	scores := map[string]float64{}
	for f := range k.hash {
		scores[f] = 1
	}
	return scores
}

// spoil changes, adds or deletes a field of a hash, or a member of a sorted set.
func (c *caller) spoil(k *key) {
	if k.hash != nil {
		fields := append(append(sorted(k.hash), c.fields...), c.owner())
		field := pick(c, fields...)
		if c.rare(3) {
			delete(k.hash, field)
			return
		}
		k.hash[field] = pick(c, pick(c, nonsense...), c.time(), c.token(), c.owner(), c.small()+" "+
			c.time()+pick(c, "", "+1", "+2")+" me", c.small()+" 2000 n1"+pick(c, "", "+", "/", "/+")+" me",
			c.time()+" "+c.small()+" 2000 n1"+pick(c, "", "+", "/", "/+")+" me",
			c.owner()+" "+c.token()+" "+c.small()+" value")
		return
	}
	members := append(slices.Sorted(maps.Keys(k.scores)), c.owner())
	member := pick(c, members...)
	if c.rare(3) {
		delete(k.scores, member)
		return
	}
	n, _, _ := strtod(c.time())
	k.scores[member] = pick(c, n, n, n+0.5, float64(c.now), -1, 0, 9e15, 1e16, math.Inf(1), math.Inf(-1))
}

func TestScriptsDoAsOnAServer(t *testing.T) {
	t.Parallel()
	c := newComparison(t)
	for i := range uint64(*sequences) {
		seed := *from + i
		k := kinds[seed%uint64(len(kinds))]
		if err := c.run(t, k, seed); err != nil {
			t.Fatalf("sequence %d (%s), to be run again by -sequences 1 -from %d:\n%v",
				seed, k.name, seed, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.replies)) {
		t.Log(name, c.replies[name])
		if *from == 1 && *sequences >= enough {
			c.reached(t, name)
		}
	}
	t.Logf("%d sequences of %d calls; on the server, time passed %d times",
		*sequences, callsEach, c.server.again)
}

// common has the kinds of replies that each script must give if there are many runs.
var common = map[string]string{
	"lock/limit":        "N S V",
	"lock/renew":        "K L",
	"lock/force":        "0 1 1+news",
	"lock/inspect":      "JSON",
	"lock/acquire":      "G K N Q Q+news S V refusal",
	"lock/release":      "L L+news R R+news refusal",
	"election/leader":   "L N",
	"election/proclaim": "K K+news L",
	"election/retract":  "F R+news",
	"latch/arrive":      "C G P",
	"latch/count":       "C S",
	"latch/delete":      "D D+news",
	"latch/inspect":     "I",
	"latch/join":        "F J+news T X refusal",
	"latch/leave":       "L L+news",
	"latch/look":        "G R Z",
	"latch/renew":       "K L",
	"latch/set":         "S V",
}

// reached fails the test unless a script has given each of its common replies. If one is missing, the random
// calls must be changed.
func (c *comparison) reached(t *testing.T, name string) {
	t.Helper()
	if common[name] == "" {
		t.Errorf("%s is not compared", name)
	}
	for _, reply := range strings.Fields(common[name]) {
		if c.replies[name][reply] == 0 {
			t.Errorf("%s never replied %s", name, reply)
		}
	}
}
