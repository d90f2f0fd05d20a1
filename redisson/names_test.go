package redisson

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

const kinds = protocol.Reentrant + protocol.Fair + protocol.RedLock + protocol.Turnstile +
	protocol.ReadWrite + protocol.Semaphore + protocol.Latch

func TestANameHasACompleteHashTagOrNoneAndIsNoOtherKey(t *testing.T) {
	long := strings.Repeat("x", protocol.MaxName)
	for name, ok := range map[string]bool{
		"": false, "\xff": true, long: true, long + "x": false,
		"x": true, "{x}": true, "a{b}c": true, "a{b": false, "a}b": false, "{}": false,
		"redisson_lock_token:x": false, "lockline_lock_memory:x": false, "app:r:{x}": false,
	} {
		if _, _, err := keysOf(name); (err == nil) != ok {
			t.Errorf("%.40q: %v", name, err)
		}
	}
}

// keysIn returns the keys that requests have.
func keysIn(k *protocol.Keys) []any {
	args := k.Request(wire.NewScript("return 1")).Args()
	return args[3 : 3+args[2].(int)]
}

func TestAllKeysAndTheChannelOfALockShareASlot(t *testing.T) {
	for name, tag := range map[string]string{"x": "x", "a{b}c": "b"} {
		k, channel, err := keysOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range append(keysIn(k), channel) {
			in := key.(string)
			if _, behind, braced := strings.Cut(in, "{"); braced {
				in, _, _ = strings.Cut(behind, "}")
			}
			if in != tag {
				t.Errorf("%q has the tag %q, want %q", key, in, tag)
			}
		}
	}
}

// allKeys returns the keys of a lock of the library. Without a prefix, it is one of this package. It returns
// nil if the prefix or the name is refused.
func allKeys(prefix, kind, name string) []any {
	var k *protocol.Keys
	var err error
	switch {
	case prefix == "" && kind == protocol.Reentrant:
		k, _, err = keysOf(name)
	case protocol.CheckPrefix(prefix) != nil: // the metadata of an empty name, too
		return nil
	case kind == protocol.Fair:
		k, err = protocol.NewKeys(prefix, kind, name, ":q", ":a", ":d")
	default:
		k, err = protocol.NewKeys(prefix, kind, name)
	}
	if err != nil {
		return nil
	}
	return keysIn(k)
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
			for at, key := range allKeys(prefix, string(kind), name) {
				for _, o := range mayHave(key.(string)) {
					theirs := slices.Index(allKeys(o[0], o[1], o[2]), key)
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

// mayHave returns the prefix, kind and name of each lock that might have a key.
func mayHave(key string) (locks [][3]string) {
	for _, begin := range []string{
		"", protocol.RedissonMetadata + "{", protocol.RedissonMetadata + ":", protocol.RedissonToken,
		protocol.RedissonToken + "{",
	} {
		rest, ok := strings.CutPrefix(key, begin)
		if ok && strings.HasSuffix(begin, "{") {
			rest, ok = strings.CutSuffix(rest, "}")
		}
		if ok {
			locks = append(locks, [3]string{"", protocol.Reentrant, rest})
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
