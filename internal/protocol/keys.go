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

// The kinds of locks. Keys and events name each kind by a lower-case letter. No kind may use the letter s,
// because the channels of sessions have the names P:s:SESSION.
const (
	Reentrant = "r"
	Fair      = "f"
	RedLock   = "q"
	Turnstile = "t" // a lock in whose queue waiters for a RedLock wait; users have no such lock
	ReadWrite = "w"
	Semaphore = "p" // p as in permits
	Latch     = "l" // for package latch, whose latches are no locks
	Redisson  = "j" // used only in events, and in no key
)

// Prefixes of further keys of the locks of package redisson. The prefix of a session may not begin with one
// of these prefixes.
const (
	RedissonMetadata = "lockline_lock_memory:"
	RedissonToken    = "redisson_lock_token:"
)

// Keys has the names of the keys of one lock in Redis. All of these keys are in one slot. The names are
// stored in the form of script arguments, so that they are converted to type any only once.
type Keys struct {
	Name   string
	boxed  []any // strings
	few    int32 // number of keys that RequestFew names
	Queued bool  // the keys after the first belong to waiters and further holders, and often do not exist
}

// LockKey returns the first key, which is the key of the lock's hash.
func (k *Keys) LockKey() string { return k.boxed[0].(string) }

// Request returns a call of a script that names all keys of the lock.
func (k *Keys) Request(sc *wire.Script, argv ...any) *wire.Request {
	return wire.NewRequest(sc, k.boxed, argv)
}

// RequestFew returns a call of a script that does not need the keys of the queue. The call names only the
// first key, or the first two for a lock of package redisson.
func (k *Keys) RequestFew(sc *wire.Script, argv ...any) *wire.Request {
	return wire.NewRequest(sc, k.boxed[:k.few], argv)
}

// FixedRequest is a request whose copies all have the same arguments. But while a slot moves, copies may name
// different keys (FixedRequest.Failed).
type FixedRequest struct {
	Script *wire.Script
	Keys   *Keys
	Argv   []any

	keys keySet // keys of the next copy
}

// A keySet is a choice of the keys of a lock that a request names.
type keySet uint8

const (
	allKeys    keySet = iota
	fewKeys           // see RequestFew
	ownKeys           // like allKeys, but with the hash instead of the key of further holders
	numKeySets        // number of sets for a lock with permits
)

// Request returns the next copy. It implements wire.Copier.
func (s *FixedRequest) Request(time.Time) *wire.Request {
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

// Failed prepares the next copy after a copy that failed with err. While a slot moves, a Cluster refuses a
// request if only some of its keys exist. Often the keys of the queue and of further holders do not exist. So
// each further copy names another keySet, in turn. If the script needs a key that the copy does not name, the
// script returns an error.
func (s *FixedRequest) Failed(err error) {
	sets := numKeySets
	if len(s.Keys.boxed) < 4 { // the lock has no permits
		sets = ownKeys
	}
	if s.Keys.Queued && wire.Replied(err, "TRYAGAIN ") {
		s.keys = (s.keys + 1) % sets
	} else {
		s.keys = allKeys
	}
}

// Failed makes the error that the user gets from err, the error of a request. It adds the name of the lock
// and, if there is one, a hint. what is the noun of the kind, as for failure.Of.
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

// NamedKeys returns the Keys of a lock whose keys have other names than NewKeys gives them. The first key is
// the hash of the lock, and the second key is its metadata. RequestFew names these two. All keys must be in
// one slot.
func NamedKeys(name string, keys ...string) *Keys {
	boxed := make([]any, len(keys))
	for i, key := range keys {
		boxed[i] = key
	}
	return &Keys{Name: name, boxed: boxed, few: 2}
}

// NewKeys returns the keys of a lock. The first key is PREFIX:KIND:{NAME}. For each string in more, there is
// another key, which is the first key followed by this string. RequestFew names only the first key. NewKeys
// returns an error if the name is not valid.
//
// A closing brace in the name ends the hash tag early. This is harmless as long as the tag is not empty,
// because all keys of the lock have the same tag. So only a name that begins with a closing brace needs an
// escape, which is a backslash. A name that begins with a backslash gets one more, so that no two names have
// the same key.
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
	var all strings.Builder // a single string saves memory, because there may be very many locks
	all.Grow(len(more) * (len(lock) + 2))
	for _, end := range more {
		from := all.Len()
		all.WriteString(lock + end)
		boxed = append(boxed, all.String()[from:])
	}
	return &Keys{Name: name, boxed: boxed, few: 1}, nil
}

// kindPart matches the part of a key between the prefix and the name, for example ":r:{".
var kindPart = regexp.MustCompile(`:[a-z]:\{`)

// Reserved returns RedissonMetadata or RedissonToken if s begins with it, and otherwise "".
func Reserved(s string) string {
	for _, begin := range [...]string{RedissonMetadata, RedissonToken} {
		if strings.HasPrefix(s, begin) {
			return begin
		}
	}
	return ""
}

// KindPart returns the first part of s that could be the part of a key between the prefix and the name, such
// as ":r:{". It returns "" if there is no such part.
func KindPart(s string) string { return kindPart.FindString(s) }

// CheckName returns an error if the name of a lock or latch is not valid.
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

// CheckPrefix returns an error if a prefix is not valid. In a valid prefix, KindPart finds nothing. So in a
// key with this prefix, KindPart finds the part behind the prefix. The key therefore determines the prefix,
// the kind and the name.
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
			"its keys could be the keys of another prefix and name", prefix, KindPart(prefix))
	case Reserved(prefix+":") != "":
		return fmt.Errorf("lockline: WithPrefix: %q begins as keys of locks that are shared with Redisson do",
			prefix)
	}
	return nil
}
