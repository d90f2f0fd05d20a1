// Package keyspace is what a Redis server keeps, as a value that can be copied and compared, and the commands
// and the Lua that the library's scripts use, executed on it. The time is an argument. Its tests compare it
// with a real server.
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

// A Space is all keys of a server. Scripts change a copy, so one that is kept never changes.
type Space struct{ keys map[string]*key }

// key is a hash or a sorted set. It is never empty. Once another Space may have it, it does not change.
type key struct {
	hash    map[string]string
	scores  map[string]float64
	expires int64 // Redis time in milliseconds after which it is gone; 0: it has no end
	shared  bool  // with another Space
}

func (k *key) size() int { return len(k.hash) + len(k.scores) }

// New is an empty Space.
func New() *Space { return &Space{keys: map[string]*key{}} }

// Clone makes a copy, at the cost of its number of keys.
func (s *Space) Clone() *Space {
	for _, k := range s.keys {
		k.shared = true
	}
	return &Space{keys: maps.Clone(s.keys)}
}

// Len is how many keys there are, also expired ones that were not purged.
func (s *Space) Len() int { return len(s.keys) }

// Keys are the names of all keys, in order.
func (s *Space) Keys() []string { return slices.Sorted(maps.Keys(s.keys)) }

// Hash is the fields of a hash; nil if there is none.
func (s *Space) Hash(name string) map[string]string {
	if k := s.keys[name]; k != nil {
		return k.hash
	}
	return nil
}

// Scores are the members of a sorted set with their scores; nil if there is none.
func (s *Space) Scores(name string) map[string]float64 {
	if k := s.keys[name]; k != nil {
		return k.scores
	}
	return nil
}

// Members are those of a sorted set, in its order.
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

// Expires is the Redis time in milliseconds after which a key is gone; 0 if it has no end, or does not exist.
func (s *Space) Expires(name string) int64 {
	if k := s.keys[name]; k != nil {
		return k.expires
	}
	return 0
}

// LastExpiry is the latest Expires; MaxInt64 if some key has no end.
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

// PutHash makes a hash with an end, in milliseconds of the Redis time; negative: none.
func (s *Space) PutHash(name string, fields map[string]string, expires int64) {
	s.keys[name] = &key{hash: fields, expires: max(0, expires)}
}

// PutScores makes a sorted set with an end, as PutHash.
func (s *Space) PutScores(name string, scores map[string]float64, expires int64) {
	s.keys[name] = &key{scores: scores, expires: max(0, expires)}
}

// Delete takes keys away.
func (s *Space) Delete(names ...string) {
	for _, name := range names {
		delete(s.keys, name)
	}
}

// Purge takes away all that is expired at a Redis time in microseconds.
func (s *Space) Purge(now int64) {
	for name, k := range s.keys {
		if k.expired(now) {
			delete(s.keys, name)
		}
	}
}

// As for scripts in Redis, a key is there in the whole of the millisecond in which it expires. Redis 8 may
// delete it in the background before.
func (k *key) expired(now int64) bool { return k.expires != 0 && now/1000 > k.expires }

// Encode is the same for two Spaces exactly if they are equal.
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

// decimal writes a score, or a number that is an argument, as Redis does.
func decimal(f float64) string { return written(f, 17) }

// written is a number as C's printf writes it by %g with so many digits.
func written(f float64, digits int) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', digits, 64), "+"))
	}
	return strconv.FormatFloat(f, 'g', digits, 64)
}
