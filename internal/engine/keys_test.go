package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/wire"
)

func TestPrefixesNeedACompleteHashTagOrNone(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"p": true, "a:b": true, "{app}": true, "a{b}c": true, "{a}{": true,
		"": false, "{": false, "}": false, "{}": false, "a{}b": false, "}{": false, "a}b": false,
	} {
		if err := checkPrefix(prefix); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

func TestAPrefixHasNoKindOfLockInIt(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"app:{tenant}": true, "app:r": true, "r:{x}": true, "app:s:{x}": true, "redisson_lock_tokens": true, "a:redisson_lock_token:": true,
		"app:r:{tenant}": false, "app:f:{x}": false, "app:q:{x}:y": false, ":r:{x}": false,
		"redisson_lock_token": false, "redisson_lock_token:": false, "lockline_lock_memory:x": false,
	} {
		if err := checkPrefix(prefix); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// keysOf are the keys of a lock, without a prefix those with RedissonKeys; nil where it is refused.
func keysOf(prefix, kind, name string) []any {
	s := &Session{SessionConfig: SessionConfig{Prefix: prefix, Redisson: prefix == ""}}
	if prefix == "" && kind != Reentrant || prefix != "" && checkPrefix(prefix) != nil {
		return nil // the former is refused by NewMutex and NewQuorum
	}
	p := &Protocol{Kind: kind}
	if kind == Fair {
		p.Heartbeat = &wire.Script{}
	}
	m := NewMutex(s, p, name, Config{})
	if m.err != nil {
		return nil
	}
	return m.keys.boxed[1:]
}

func FuzzAKeyTellsWhoseItIs(f *testing.F) {
	for _, s := range [][2]string{
		{"app", "tenant}:r:{y"}, {"app:r:{tenant}", "y"}, {"a:r", "x"}, {"{a}", "}x"}, {"a:", `\}`}, {"a", "x}:t"}, {"a:{b}", "}:f:{c"},
		{"", "x"}, {"", "{x}"}, {"", "lockline:r:{x}"}, {"", "lockline_lock_memory:{x}"}, {"", "redisson_lock_token:x{y}"}, {"", "r:{x}"}, {"", ":r:{x}:t"},
		{"redisson_lock_token", "x"}, {"lockline_lock_memory:", "x"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, prefix, name string) {
		for _, kind := range kinds {
			made := keysOf(prefix, string(kind), name)
			for at, key := range made {
				key := key.(string)
				// Whatever lock might have this key, too.
				var others [][3]string
				for _, begin := range []string{"", redissonMemory + "{", redissonMemory + ":", redissonToken, redissonToken + "{"} {
					rest, ok := strings.CutPrefix(key, begin)
					if ok && strings.HasSuffix(begin, "{") {
						rest, ok = strings.CutSuffix(rest, "}")
					}
					if ok {
						others = append(others, [3]string{"", Reentrant, rest})
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
								others = append(others, [3]string{key[:i], string(k), tag}, [3]string{key[:i], string(k), strings.TrimPrefix(tag, `\`)})
							}
						}
					}
				}
				for _, o := range others {
					theirs := slices.Index(keysOf(o[0], o[1], o[2]), any(key))
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
