// Package keyspace models the keys of a Redis server as a value that can be copied and compared. It runs the
// library's scripts on these keys, and has the Redis commands and the parts of Lua that the scripts need. The
// caller of a script sets the time. The tests compare the model with a real server.
package keyspace

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Space has all keys of a server. A script does not change the Space that it gets, but a copy.
type Space struct{ keys map[string]*key }

// key is a hash or a sorted set with at least one member. When a second Space has the key, too, the key does
// not change any more.
type key struct {
	hash    map[string]string
	scores  map[string]float64
	expires int64 // Redis time in milliseconds after which the key has expired; 0 if it never expires
	shared  bool  // another Space has the key, too
}

func (k *key) size() int { return len(k.hash) + len(k.scores) }

// New returns an empty Space.
func New() *Space { return &Space{keys: map[string]*key{}} }

// Clone returns a copy. The time that it takes depends on the number of keys, but not on their sizes.
func (s *Space) Clone() *Space {
	for _, k := range s.keys {
		k.shared = true
	}
	return &Space{keys: maps.Clone(s.keys)}
}

// Len returns the number of keys, including expired keys that were not purged.
func (s *Space) Len() int { return len(s.keys) }

// Keys returns the sorted names of all keys.
func (s *Space) Keys() []string { return slices.Sorted(maps.Keys(s.keys)) }

// Hash returns the fields of a hash, or nil if there is no such hash.
func (s *Space) Hash(name string) map[string]string {
	if k := s.keys[name]; k != nil {
		return k.hash
	}
	return nil
}

// Scores returns the members of a sorted set with their scores, or nil if there is no such set.
func (s *Space) Scores(name string) map[string]float64 {
	if k := s.keys[name]; k != nil {
		return k.scores
	}
	return nil
}

// Members returns the members of a sorted set in the order of the set.
func (s *Space) Members(name string) []string {
	if k := s.keys[name]; k != nil {
		return k.members()
	}
	return nil
}

func (k *key) members() []string {
	return slices.SortedFunc(maps.Keys(k.scores), func(a, b string) int {
		return cmp.Or(cmp.Compare(k.scores[a], k.scores[b]), cmp.Compare(a, b))
	})
}

// Expires returns the Redis time in milliseconds after which a key has expired. It returns 0 if the key never
// expires or does not exist.
func (s *Space) Expires(name string) int64 {
	if k := s.keys[name]; k != nil {
		return k.expires
	}
	return 0
}

// LastExpiry returns the latest Expires of all keys, or MaxInt64 if some key never expires. It returns 0 if
// there are no keys.
func (s *Space) LastExpiry() int64 {
	var last int64
	for _, k := range s.keys {
		if k.expires == 0 {
			return math.MaxInt64
		}
		last = max(last, k.expires)
	}
	return last
}

// PutHash makes a hash, in place of any key of this name. expires is the Redis time in milliseconds after
// which the hash has expired. If expires is 0 or negative, the hash never expires.
func (s *Space) PutHash(name string, fields map[string]string, expires int64) {
	s.keys[name] = &key{hash: fields, expires: max(0, expires)}
}

// PutScores makes a sorted set, in place of any key of this name. For expires, see PutHash.
func (s *Space) PutScores(name string, scores map[string]float64, expires int64) {
	s.keys[name] = &key{scores: scores, expires: max(0, expires)}
}

// Delete deletes keys.
func (s *Space) Delete(names ...string) {
	for _, name := range names {
		delete(s.keys, name)
	}
}

// Purge deletes the keys that have expired. now is the Redis time in microseconds.
func (s *Space) Purge(now int64) {
	for name, k := range s.keys {
		if k.expired(now) {
			delete(s.keys, name)
		}
	}
}

// expired reports whether the key does not exist any more for a script. As in Redis, a script still sees the
// key in the millisecond of the expiry. But Redis 8 may already delete the key in the background in this
// millisecond.
func (k *key) expired(now int64) bool { return k.expires != 0 && now/1000 > k.expires }

// Encode returns a text. Two Spaces have the same text exactly if they are equal.
func (s *Space) Encode() string {
	b := make([]byte, 0, 256)
	text := func(t string) {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = append(b, t...)
	}
	for _, name := range s.Keys() {
		k := s.keys[name]
		text(name)
		b = binary.AppendVarint(b, k.expires)
		b = binary.AppendUvarint(b, uint64(len(k.hash)))
		for _, field := range slices.Sorted(maps.Keys(k.hash)) {
			text(field)
			text(k.hash[field])
		}
		b = binary.AppendUvarint(b, uint64(len(k.scores)))
		for _, member := range k.members() {
			text(member)
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(k.scores[member]))
		}
	}
	return string(b)
}

// decimal formats a score, or a number that is an argument of a command, as Redis does.
func decimal(f float64) string { return written(f, 17) }

// written formats a number as C's printf does with %g and this number of digits.
func written(f float64, digits int) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', digits, 64), "+"))
	}
	return strconv.FormatFloat(f, 'g', digits, 64)
}
