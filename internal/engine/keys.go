package engine

import (
	"errors"
	"fmt"
	"strings"
)

// MaxName is the longest name of a lock, in bytes.
const MaxName = 512

// The kinds of locks, as keys and events name them. A new one is a letter in kinds, too.
const (
	Reentrant = "r"
	Fair      = "f"
	RedLock   = "q"

	kinds = Reentrant + Fair + RedLock
)

// What the names of further keys begin with where there is no prefix: with RedissonKeys.
const (
	redissonMemory = "lockline_lock_memory:"
	redissonToken  = "redisson_lock_token:"
)

// Keys are the names of one lock in Redis, all in one cluster slot: the hash, the
// memory that outlives it, with Redisson its token counter, and the channel. They are kept as
// script arguments, boxed once; a session may hold very many.
type Keys struct {
	Name    string
	boxed   []any // number of keys, then the keys
	channel any
}

func (k *Keys) lock() string   { return k.boxed[1].(string) }
func (k *Keys) memory() string { return k.boxed[2].(string) }

// newKeys makes P:kind:{name}. Braces in the name would end the hash tag early,
// which is harmless as long as the tag is the same for all keys and not empty:
// only a name that begins with a closing brace needs an escape.
// more are the endings of further keys.
func newKeys(prefix, kind, name string, more ...string) (*Keys, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	tag := name
	if strings.HasPrefix(name, "}") || strings.HasPrefix(name, `\`) {
		tag = `\` + name
	}
	memory := prefix + ":" + kind + ":{" + tag + "}:t"
	lock := memory[:len(memory)-2]
	boxed := make([]any, 0, 3+len(more))
	boxed = append(boxed, 2+len(more), lock, memory)
	for _, end := range more {
		boxed = append(boxed, lock+end)
	}
	return &Keys{Name: name, boxed: boxed, channel: boxed[1]}, nil
}

// redissonKeys are the names that Redisson gives to an RLock and its fencing
// token. The memory is ours alone; Redisson's token is a third key.
func redissonKeys(name string) (*Keys, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if !tagged(name) {
		return nil, fmt.Errorf("lockline: RedissonKeys: the braces of a name must be a hash tag, or its keys land in different slots: %q", name)
	}
	// The name is the key, so it may be no other lock's key.
	if of := beginsAsRedisson(name); of != "" {
		return nil, fmt.Errorf("lockline: RedissonKeys: no name may begin with %q, as keys of other locks do: %q", of, name)
	}
	if part := kindIn(name); part != "" {
		return nil, fmt.Errorf("lockline: RedissonKeys: no name may contain %q, as keys of sessions with a prefix do: %q", part, name)
	}
	braced := strings.Contains(name, "{")
	join := func(prefix string) string {
		if braced {
			return prefix + name
		}
		return prefix + "{" + name + "}"
	}
	memory := redissonMemory + "{" + name + "}"
	if braced {
		memory = redissonMemory + ":" + name // x and {x} are two locks, and share a token counter at most
	}
	return &Keys{Name: name,
		boxed:   []any{3, name, memory, join(redissonToken)},
		channel: join("redisson_lock__channel:")}, nil
}

// kindIn finds what stands between prefix and name in the keys of a kind.
func kindIn(s string) string {
	for _, kind := range kinds {
		if part := ":" + string(kind) + ":{"; strings.Contains(s, part) {
			return part
		}
	}
	return ""
}

// beginsAsRedisson: s begins as a key that there is beside a lock's own with RedissonKeys.
func beginsAsRedisson(s string) string {
	for _, begin := range [...]string{redissonMemory, redissonToken} {
		if strings.HasPrefix(s, begin) {
			return begin
		}
	}
	return ""
}

func checkName(name string) error {
	if name == "" {
		return errors.New(`lockline: the name of a lock is empty: ""`)
	}
	if len(name) > MaxName {
		return fmt.Errorf("lockline: the name of a lock is %d bytes long, over %d: it begins %.40q", len(name), MaxName, name)
	}
	return nil
}

// tagged: no braces, or a complete hash tag that is not empty.
func tagged(s string) bool {
	open := strings.Index(s, "{")
	if open < 0 {
		return !strings.Contains(s, "}")
	}
	return strings.Index(s[open:], "}") > 1
}

// checkPrefix refuses what would let two prefixes share a key. Without a kind in the prefix, the
// first kind in a key is what follows the prefix, so the key says which prefix, kind and name made it.
func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
		return errors.New(`lockline: WithPrefix: the prefix is empty: ""`)
	case len(prefix) > MaxName:
		return fmt.Errorf("lockline: WithPrefix: the prefix is %d bytes long, over %d", len(prefix), MaxName)
	case !tagged(prefix):
		return fmt.Errorf("lockline: WithPrefix: the braces of %q are no hash tag", prefix)
	case kindIn(prefix) != "":
		return fmt.Errorf("lockline: WithPrefix: %q contains %q: its keys could be those of another prefix and name", prefix, kindIn(prefix))
	case beginsAsRedisson(prefix+":") != "":
		return fmt.Errorf("lockline: WithPrefix: %q begins as keys of locks that are shared with Redisson do", prefix)
	}
	return nil
}
