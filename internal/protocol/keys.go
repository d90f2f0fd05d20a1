package protocol

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
)

// MaxName is the longest name of a lock, in bytes.
const MaxName = 512

// The kinds of locks, as keys and events name them: each has a lower-case letter.
const (
	Reentrant = "r"
	Fair      = "f"
	RedLock   = "q"
	Turnstile = "t" // where those stand who wait for a RedLock; users have none
	ReadWrite = "w"
	Semaphore = "p" // for permits
	Latch     = "l" // no lock: see package latch
	Redisson  = "j" // of events alone
)

// What the names of further keys begin with of the locks of package redisson, which makes them. No prefix of
// a session may begin so.
const (
	RedissonMetadata = "lockline_lock_memory:"
	RedissonToken    = "redisson_lock_token:"
)

// Keys are the names of one lock's keys in Redis, all in one cluster slot. They are kept as script arguments,
// boxed once, because a session may have very many locks.
type Keys struct {
	Name   string
	Queued bool  // the keys behind the first are of a queue, which only a release with waiters needs
	boxed  []any // strings
	few    int   // how many of these RequestFew names
}

// LockKey is the key of the hash. It names the lock, whatever its kind.
func (k *Keys) LockKey() string { return k.boxed[0].(string) }

// Request builds a call of a script on the lock.
func (k *Keys) Request(sc *wire.Script, argv ...any) *wire.Request {
	return wire.NewRequest(sc, k.boxed, argv)
}

// RequestFew builds a call of a script that needs no key of a queue. A lock of package redisson has two such
// keys, any other lock one.
func (k *Keys) RequestFew(sc *wire.Script, argv ...any) *wire.Request {
	return wire.NewRequest(sc, k.boxed[:k.few], argv)
}

// Same is a request whose copies are all the same.
type Same struct {
	Script *wire.Script
	Keys   *Keys
	Argv   []any

	keys keySet // keys of the next copy
}

// keySet is a choice of the keys of a lock.
type keySet uint8

const (
	allKeys  keySet = iota
	fewKeys         // see RequestFew
	ownKeys         // without the key of further holders, in whose place the lock's hash is named
	noOfSets        // of a lock with permits
)

// Request makes a copy.
func (s *Same) Request(time.Time) *wire.Request {
	k := s.Keys
	switch s.keys {
	case fewKeys:
		return k.RequestFew(s.Script, s.Argv...)
	case ownKeys:
		last := len(k.boxed) - 1
		return wire.NewRequest(s.Script, append(slices.Clone(k.boxed[:last]), k.boxed[0]), s.Argv)
	}
	return k.Request(s.Script, s.Argv...)
}

// Failed notes why the last copy was not answered, and that it will be sent again. While their slot moves, a
// Cluster refuses a request if only some of its keys exist. Often there is no queue, and no further holder of
// permits. So the next copies name fewer keys, and the script says if it needs the others.
func (s *Same) Failed(err error) {
	sets := noOfSets
	if len(s.Keys.boxed) < 4 { // without permits
		sets = ownKeys
	}
	if s.Keys.Queued && strings.HasPrefix(err.Error(), "TRYAGAIN ") {
		s.keys = (s.keys + 1) % sets
	} else {
		s.keys = allKeys
	}
}

// Failed is a request's error for the user, with a noun as failure.Of has it.
func (k *Keys) Failed(what string, err error) error {
	hint := wire.Hint(err)
	switch {
	case strings.Contains(err.Error(), "WRONGTYPE"):
		hint = fmt.Sprintf(" (this version of Lockline did not write one of its keys %q: "+
			"see docs/operations.md#a-value-that-lockline-did-not-write)", k.boxed)
	case errors.As(err, new(wire.Unexpected)):
		hint = fmt.Sprintf(" (its keys are %q)", k.boxed)
	}
	return failure.Of(what, k.Name, fmt.Errorf("%w%s", err, hint))
}

// NamedKeys returns the keys of a lock whose keys have names of another form than NewKeys makes. The first is
// the lock's hash, and the second its metadata, which RequestFew names. All must be in one slot.
func NamedKeys(name string, keys ...string) *Keys {
	boxed := make([]any, len(keys))
	for i, key := range keys {
		boxed[i] = key
	}
	return &Keys{Name: name, boxed: boxed, few: 2}
}

// NewKeys returns the keys of a lock: PREFIX:KIND:{NAME}, and for each ending in more the same with that
// ending. Its error names the fault of the name. RequestFew names the first key alone. Braces in the
// name would end the hash tag early. That is harmless as long as the tag is the same for all keys and not
// empty: only a name that begins with a closing brace needs an escape.
func NewKeys(prefix, kind, name string, more ...string) (*Keys, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	tag := name
	if strings.HasPrefix(name, "}") || strings.HasPrefix(name, `\`) {
		tag = `\` + name
	}
	lock := prefix + ":" + kind + ":{" + tag + "}"
	boxed := make([]any, 1, 1+len(more))
	boxed[0] = lock
	var all strings.Builder // of one piece: there may be very many locks
	all.Grow(len(more) * (len(lock) + 2))
	for _, end := range more {
		from := all.Len()
		all.WriteString(lock + end)
		boxed = append(boxed, all.String()[from:])
	}
	return &Keys{Name: name, boxed: boxed, few: 1}, nil
}

// kindPart is what stands between prefix and name in the keys of any kind.
var kindPart = regexp.MustCompile(`:[a-z]:\{`)

// Reserved returns the beginning of s if keys of package redisson begin so. Otherwise it returns "".
func Reserved(s string) string {
	for _, begin := range [...]string{RedissonMetadata, RedissonToken} {
		if strings.HasPrefix(s, begin) {
			return begin
		}
	}
	return ""
}

// KindPart returns what a key of any kind has between prefix and name, if s contains that. Otherwise it
// returns "".
func KindPart(s string) string { return kindPart.FindString(s) }

// CheckName says what is wrong with the name of a lock or latch.
func CheckName(name string) error {
	if name == "" {
		return errors.New(`lockline: the name is empty: ""`)
	}
	if len(name) > MaxName {
		return fmt.Errorf("lockline: the name is %d bytes long, over %d: it begins %.40q",
			len(name), MaxName, name)
	}
	return nil
}

// Tagged reports whether s has no braces, or a complete hash tag that is not empty.
func Tagged(s string) bool {
	open := strings.Index(s, "{")
	if open < 0 {
		return !strings.Contains(s, "}")
	}
	return strings.Index(s[open:], "}") > 1
}

// CheckPrefix refuses what would let two prefixes share a key. Without a kind in the prefix, the
// first kind in a key is what follows the prefix, so the key says which prefix, kind and name made it.
func CheckPrefix(prefix string) error {
	switch {
	case prefix == "":
		return errors.New(`lockline: WithPrefix: the prefix is empty: ""`)
	case len(prefix) > MaxName:
		return fmt.Errorf("lockline: WithPrefix: the prefix is %d bytes long, over %d", len(prefix), MaxName)
	case !Tagged(prefix):
		return fmt.Errorf("lockline: WithPrefix: the braces of %q are no hash tag", prefix)
	case KindPart(prefix) != "":
		return fmt.Errorf("lockline: WithPrefix: %q contains %q: "+
			"its keys could be those of another prefix and name", prefix, KindPart(prefix))
	case Reserved(prefix+":") != "":
		return fmt.Errorf("lockline: WithPrefix: %q begins as keys of locks that are shared with Redisson do",
			prefix)
	}
	return nil
}
