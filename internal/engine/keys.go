package engine

import (
	"errors"
	"fmt"
	"strings"
)

// MaxName is the longest name of a lock, in bytes.
const MaxName = 512

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
		return nil, fmt.Errorf("lockline: with RedissonKeys the braces of a name must be a hash tag, or its keys land in different slots: %q", name)
	}
	join := func(prefix string) string {
		if strings.Contains(name, "{") {
			return prefix + ":" + name
		}
		return prefix + ":{" + name + "}"
	}
	memory := "lockline_lock_memory:{" + name + "}"
	if strings.Contains(name, "{") {
		memory = "lockline_lock_memory::" + name // x and {x} are two locks, and share a token counter at most
	}
	return &Keys{Name: name,
		boxed:   []any{3, name, memory, join("redisson_lock_token")},
		channel: join("redisson_lock__channel")}, nil
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

func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
		return errors.New(`lockline: WithPrefix: the prefix is empty: ""`)
	case len(prefix) > MaxName:
		return fmt.Errorf("lockline: WithPrefix: the prefix is %d bytes long, over %d", len(prefix), MaxName)
	case !tagged(prefix):
		return fmt.Errorf("lockline: WithPrefix: the braces of %q are no hash tag", prefix)
	}
	return nil
}
