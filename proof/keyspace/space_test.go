package keyspace

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestACloneIsIndependent(t *testing.T) {
	calls := [][]string{
		{"HSET", "hash", "a", "2"}, {"HSET", "hash", "new", "1"}, {"HDEL", "hash", "a"}, {"HDEL", "one", "a"},
		{"HSET", "added", "a", "1"},
		{"ZADD", "zset", "7", "m"}, {"ZADD", "zset", "7", "new"}, {"ZREM", "zset", "m"},
		{"ZREM", "oneset", "m"}, {"ZADD", "addedset", "1", "m"},
		{"PEXPIRE", "hash", "100"}, {"PEXPIRE", "zset", "0"}, {"DEL", "later"}, {"HGET", "ended", "a"},
	}
	for _, call := range calls {
		for _, changed := range []string{"the clone", "the original", "a clone of a clone"} {
			original := sample()
			clone := original.Clone()
			second := clone.Clone()
			of := map[string]*Space{"the clone": clone, "the original": original,
				"a clone of a clone": second}
			before := original.Encode()
			x := &execution{space: of[changed], env: Env{Now: start}}
			if reply, ok := x.call(call[0], call[1:]).(error); ok {
				t.Fatal(call, reply)
			}
			for name, space := range of {
				if same := space.Encode() == before; same == (name == changed) {
					t.Errorf("%v on %s: the same as before is %s: %v", call, changed, name, same)
				}
			}
		}
	}
	original := sample()
	clone := original.Clone()
	clone.Delete("hash", "no")
	clone.Purge(start + 1e12)
	if original.Encode() != sample().Encode() {
		t.Error("Delete or Purge of a clone changed the original")
	}
}

// randomSpace returns one of only a few different spaces, so that two results are often equal.
func randomSpace(r *rand.Rand) *Space {
	s := New()
	text := func() string { return []string{"", "a", "aa", "\x00"}[r.IntN(4)] }
	for range r.IntN(3) {
		k := &key{expires: r.Int64N(2)}
		if r.IntN(2) == 0 {
			k.hash = map[string]string{text(): text()}
		} else {
			k.scores = map[string]float64{text(): float64(r.IntN(2))}
		}
		s.keys[text()] = k
	}
	return s
}

func equal(a, b *Space) bool {
	return maps.EqualFunc(a.keys, b.keys, func(k, l *key) bool {
		return k.expires == l.expires && maps.Equal(k.hash, l.hash) && maps.Equal(k.scores, l.scores)
	})
}

func TestEncodeIsEqualExactlyForEqualSpaces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	same := 0
	for range 20_000 {
		a, b := randomSpace(r), randomSpace(r)
		if equal(a, b) {
			same++
		}
		if (a.Encode() == b.Encode()) != equal(a, b) {
			t.Fatalf("%q %q", a.Encode(), b.Encode())
		}
	}
	if same < 200 {
		t.Errorf("only %d spaces were equal", same)
	}
	a, b := sample(), sample()
	a.Clone()
	x := &execution{space: a, env: Env{Now: start - 1e6}}
	for name, k := range b.keys { // the same values, but written later and in another order
		if k.hash != nil {
			for field, value := range k.hash {
				x.call("HSET", []string{name, field, "other"})
				x.call("HSET", []string{name, field, value})
			}
		}
	}
	if a.Encode() != b.Encode() {
		t.Error("how a space was made counts")
	}
}

func TestPurge(t *testing.T) {
	s := sample()
	for _, c := range []struct {
		now  int64
		gone []string
	}{
		{start - 1, nil},
		{start, []string{"ended", "endedset"}},
		{start + 999, nil},
		{start + 1000, []string{"ends", "endsset"}},
		{start + 1999, nil},
		{start + 2000, []string{"next"}},
		{start + 5_000_999, nil},
		{start + 5_001_000, []string{"later"}},
		{start + 1e15, nil},
	} {
		before := s.Keys()
		s.Purge(c.now)
		var gone []string
		for _, name := range before {
			if !slices.Contains(s.Keys(), name) {
				gone = append(gone, name)
			}
		}
		if !slices.Equal(gone, c.gone) {
			t.Errorf("at %d %q are gone, not %q", c.now-start, gone, c.gone)
		}
	}
	if got := s.Keys(); !slices.Equal(got, []string{"hash", "one", "oneset", "zset"}) || s.Len() != 4 {
		t.Errorf("what has no end: %q, %d", got, s.Len())
	}
}

func TestWhatIsStoredCanBeRead(t *testing.T) {
	const ms = start / 1000
	s := sample()
	if !maps.Equal(s.Hash("one"), map[string]string{"a": "1"}) || s.Hash("zset") != nil ||
		s.Hash("no") != nil {
		t.Error("Hash")
	}
	if !maps.Equal(s.Scores("oneset"), map[string]float64{"m": 1}) || s.Scores("hash") != nil ||
		s.Scores("no") != nil {
		t.Error("Scores")
	}
	if got := s.Members("zset"); !slices.Equal(got, []string{"first", "m", "half", "n", "o", "last"}) ||
		s.Members("no") != nil {
		t.Errorf("Members: %q", got)
	}
	if s.Expires("later") != ms+5000 || s.Expires("hash") != 0 || s.Expires("no") != 0 {
		t.Error("Expires")
	}
	if s.LastExpiry() != 1<<63-1 {
		t.Error("LastExpiry where a key has no end")
	}
	s.Delete("hash", "zset", "one", "oneset")
	if got := s.LastExpiry(); got != ms+5000 || New().LastExpiry() != 0 {
		t.Errorf("LastExpiry: %d", got)
	}
}
