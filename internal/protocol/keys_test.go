package protocol

import (
	"errors"
	"fmt"
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
		if _, err := NewKeys("p", Reentrant, name); (err == nil) != ok {
			t.Errorf("%.40q: %v", name, err)
		}
	}
}

func TestAllKeysOfALockShareASlot(t *testing.T) {
	type named func(name string) (*Keys, error)
	with := func(prefix, kind string, more ...string) named {
		return func(name string) (*Keys, error) { return NewKeys(prefix, kind, name, more...) }
	}
	for _, c := range []struct {
		named     named
		name, tag string
	}{
		{with("p", Reentrant), "x", "x"}, {with("p", Fair, ":q", ":w"), "a b", "a b"},
		{with("{app}", RedLock), "x", "app"},
		{with("p", Reentrant), "{y}", "{y"}, {with("p", Reentrant), "x{y}", "x{y"},
		{with("p", Reentrant), "}x", `\`}, {with("p", Reentrant), `\x`, `\\x`},
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
	}
}

// hashTag returns the part of a key that determines the cluster slot of the key.
func hashTag(key string) string {
	_, tag, _ := strings.Cut(key, "{")
	if tag, _, ok := strings.Cut(tag, "}"); ok && tag != "" {
		return tag
	}
	return key
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
	k, err := NewKeys("p", Semaphore, "x", ":q", ":w", ":h")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		hint string
	}{
		{reply("WRONGTYPE Operation against a key"),
			`(this version of Lockline did not write one of its keys ` +
				`["p:p:{x}" "p:p:{x}:q" "p:p:{x}:w" "p:p:{x}:h"]: ` +
				"see docs/operations.md#a-value-that-lockline-did-not-write)"},
		{wire.Unexpected("OK"), `(its keys are ["p:p:{x}" "p:p:{x}:q" "p:p:{x}:w" "p:p:{x}:h"])`},
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
