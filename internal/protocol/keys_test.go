package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/wire"
)

// reply is an error that a server answered with.
type reply string

func (r reply) Error() string { return string(r) }

func (r reply) RedisError() {}

func TestPrefixesNeedACompleteHashTagOrNone(t *testing.T) {
	for prefix, ok := range map[string]bool{
		strings.Repeat("p", MaxName): true, strings.Repeat("p", MaxName+1): false,
		"p": true, "a:b": true, "{app}": true, "a{b}c": true, "{a}{": true,
		"": false, "{": false, "}": false, "{}": false, "a{}b": false, "}{": false, "a}b": false,
	} {
		if err := CheckPrefix(prefix); (err == nil) != ok {
			t.Errorf("%.40q: %v", prefix, err)
		}
	}
}

const kinds = Reentrant + Fair + RedLock + Turnstile + ReadWrite + Semaphore + Latch

// Proves: names
func TestAPrefixHasNoKindOfLockInIt(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"app:{tenant}": true, "app:r": true, "r:{x}": true,
		"app:1:{x}": true, "app:rr:{x}": true,
		"redisson_lock_tokens": true, "a:redisson_lock_token:": true,
		"app:r:{tenant}": false, "app:z:{x}": false, "app:f:{x}": false,
		"app:q:{x}:y": false, ":r:{x}": false,
		"redisson_lock_token": false, "redisson_lock_token:": false, "lockline_lock_memory:x": false,
	} {
		if err := CheckPrefix(prefix); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

func TestANameIsOfOneTo512Bytes(t *testing.T) {
	long := strings.Repeat("x", MaxName)
	for name, ok := range map[string]bool{"": false, "x": true, "\xff": true, long: true, long + "x": false} {
		_, plain := NewKeys("p", Reentrant, name)
		_, redisson := RedissonKeys(name)
		if (plain == nil) != ok || (redisson == nil) != ok {
			t.Errorf("%.40q: %v; %v", name, plain, redisson)
		}
	}
}

func TestANameForRedissonHasACompleteHashTagOrNoneAndIsNoOtherKey(t *testing.T) {
	for name, ok := range map[string]bool{
		"x": true, "{x}": true, "a{b}c": true, "a{b": false, "a}b": false, "{}": false,
		"redisson_lock_token:x": false, "lockline_lock_memory:x": false, "app:r:{x}": false,
	} {
		if _, err := RedissonKeys(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAllKeysOfALockShareASlot(t *testing.T) {
	type named func(name string) (*Keys, error)
	with := func(prefix, kind string, more ...string) named {
		return func(name string) (*Keys, error) { return NewKeys(prefix, kind, name, more...) }
	}
	redisson := func(name string) (*Keys, error) { return RedissonKeys(name) }
	for _, c := range []struct {
		named     named
		name, tag string
	}{
		{with("p", Reentrant), "x", "x"}, {with("p", Fair, ":q", ":a"), "a b", "a b"},
		{with("{app}", RedLock), "x", "app"},
		{with("p", Reentrant), "{y}", "{y"}, {with("p", Reentrant), "x{y}", "x{y"},
		{with("p", Reentrant), "}x", `\`}, {with("p", Reentrant), `\x`, `\\x`},
		{redisson, "x", "x"}, {redisson, "a{b}c", "b"},
	} {
		k, err := c.named(c.name)
		if err != nil {
			t.Error(err)
			continue
		}
		if tag := hashTag(k.LockKey()); tag != c.tag {
			t.Errorf("%q: the hash tag is %q, want %q", k.LockKey(), tag, c.tag)
		}
		for _, key := range k.boxed {
			if tag := hashTag(key.(string)); tag != c.tag {
				t.Errorf("%q: the hash tag of %q is %q", k.LockKey(), key, tag)
			}
		}
		if k.boxed[1] == k.boxed[0] {
			t.Errorf("%q: %q", k.LockKey(), k.boxed)
		}
	}
}

// hashTag is the part of a key that decides its cluster slot.
func hashTag(key string) string {
	_, tag, _ := strings.Cut(key, "{")
	if tag, _, ok := strings.Cut(tag, "}"); ok && tag != "" {
		return tag
	}
	return key
}

// keysOf are the keys of a lock, without a prefix those with Redisson; nil where it is refused.
func keysOf(prefix, kind, name string) []any {
	var k *Keys
	var err error
	switch {
	case prefix == "" && kind == Reentrant:
		k, err = RedissonKeys(name)
	case CheckPrefix(prefix) != nil: // that of an empty one, too
		return nil
	case kind == Fair:
		k, err = NewKeys(prefix, kind, name, ":q", ":a", ":d")
	default:
		k, err = NewKeys(prefix, kind, name)
	}
	if err != nil {
		return nil
	}
	return k.boxed
}

func FuzzAKeyTellsWhoseItIs(f *testing.F) {
	for _, s := range [][2]string{
		{"app", "tenant}:r:{y"}, {"app:r:{tenant}", "y"}, {"a:r", "x"}, {"{a}", "}x"}, {"a:", `\}`},
		{"a", "x}:t"}, {"a:{b}", "}:f:{c"},
		{"", "x"}, {"", "{x}"}, {"", "lockline:r:{x}"}, {"", "lockline_lock_memory:{x}"},
		{"", "redisson_lock_token:x{y}"}, {"", "r:{x}"}, {"", ":r:{x}:t"},
		{"redisson_lock_token", "x"}, {"lockline_lock_memory:", "x"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, prefix, name string) {
		for _, kind := range kinds {
			for at, key := range keysOf(prefix, string(kind), name) {
				for _, o := range mayHave(key.(string)) {
					theirs := slices.Index(keysOf(o[0], o[1], o[2]), key)
					if theirs < 0 || o == [3]string{prefix, string(kind), name} && theirs == at {
						continue
					}
					if prefix == "" && o[0] == "" && at == 2 && theirs == 2 {
						continue // Redisson has one counter for x and {x}
					}
					t.Errorf("key %q is of %q and of %q", key, [3]string{prefix, string(kind), name}, o)
				}
			}
		}
	})
}

// mayHave are the prefix, kind and name of whatever locks might have a key.
func mayHave(key string) (locks [][3]string) {
	for _, begin := range []string{
		"", redissonMetadata + "{", redissonMetadata + ":", redissonToken, redissonToken + "{",
	} {
		rest, ok := strings.CutPrefix(key, begin)
		if ok && strings.HasSuffix(begin, "{") {
			rest, ok = strings.CutSuffix(rest, "}")
		}
		if ok {
			locks = append(locks, [3]string{"", Reentrant, rest})
		}
	}
	for i := range key {
		for _, k := range kinds {
			tag, ok := strings.CutPrefix(key[i:], ":"+string(k)+":{")
			if !ok {
				continue
			}
			for _, end := range []string{"}", "}:t", "}:q", "}:a", "}:d"} {
				if tag, ok := strings.CutSuffix(tag, end); ok {
					locks = append(locks, [3]string{key[:i], string(k), tag},
						[3]string{key[:i], string(k), strings.TrimPrefix(tag, `\`)})
				}
			}
		}
	}
	return locks
}

func keys(t *testing.T, name string) *Keys {
	t.Helper()
	k, err := NewKeys("p", Reentrant, name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAFailedRequestNamesItsLockAndSaysWhatToDo(t *testing.T) {
	k, err := NewKeys("p", Semaphore, "x", ":q", ":h")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		hint string
	}{
		{reply("WRONGTYPE Operation against a key"),
			`(Lockline did not write one of its keys ["p:p:{x}" "p:p:{x}:t" "p:p:{x}:q" "p:p:{x}:h"]: ` +
				"see docs/operations.md#a-value-that-lockline-did-not-write)"},
		{wire.Unexpected("OK"), `(its keys are ["p:p:{x}" "p:p:{x}:t" "p:p:{x}:q" "p:p:{x}:h"])`},
		{reply("MOVED 1 a:1"), "NewClusterClient"},
		{reply("ERR unknown command 'evalsha', with args"), "NewFailoverClient"},
		{reply("ERR unknown command `EVALSHA`, with args"), "NewFailoverClient"},
		{reply("ERR unknown command 'hset', with args"), ""},
		{errors.New("MOVED by hand"), ""},
	} {
		err := k.Failed("", fmt.Errorf("lockline: %w", c.err))
		if begin := `lockline: lock "x": ` + c.err.Error(); !strings.HasPrefix(err.Error(), begin) ||
			!strings.Contains(err.Error(), c.hint) || (c.hint == "") != (err.Error() == begin) ||
			!errors.Is(err, c.err) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}
