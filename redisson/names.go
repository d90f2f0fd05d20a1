package redisson

import (
	"fmt"
	"strings"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// names has the keys and the channel of a lock, and further arguments of the scripts. The fields of type any
// are arguments of scripts. A conversion to this type in each request would cost an allocation.
type names struct {
	keys    *protocol.Keys // keys of Redisson's hash, of Lockline's metadata, and of Redisson's token counter
	channel any            // name of the channel on which a release is published, a string
	how     any            // mode of pub/sub, "auto" or "classic" (see the function sharding in base.lua)
	counter any            // "0" if the script must create a missing token counter, otherwise ""
}

// newNames returns the names for a lock of a session. counter becomes names.counter.
func newNames(s *session.Session, name, counter string) (*names, error) {
	keys, channel, err := keysOf(name)
	if err != nil {
		return nil, err
	}
	n := &names{keys: keys, channel: channel, how: "classic", counter: counter}
	if s.ShardedHub != nil {
		n.how = "auto"
	}
	return n, nil
}

// keysOf returns the keys and the channel of the lock with this name. Redisson uses the same hash, channel
// and token counter, but not the metadata. The key of the hash is the name of the lock.
func keysOf(name string) (keys *protocol.Keys, channel string, err error) {
	if err := protocol.CheckName(name); err != nil {
		return nil, "", err
	}
	if !protocol.Tagged(name) {
		return nil, "", fmt.Errorf("lockline: redisson: the braces of a name must be a hash tag, "+
			"or its keys land in different slots: %q", name)
	}
	// The name is a key, and must not be the key of another lock.
	if begin := protocol.Reserved(name); begin != "" {
		return nil, "", fmt.Errorf(
			"lockline: redisson: no name may begin with %q, as keys of other locks do: %q", begin, name)
	}
	if part := protocol.KindPart(name); part != "" {
		return nil, "", fmt.Errorf("lockline: redisson: no name may contain %q, "+
			"as keys of sessions with a prefix do: %q", part, name)
	}
	tagged := "{" + name + "}" // Redisson forms its other names from a prefix and this tag
	metadata := protocol.RedissonMetadata + tagged
	if strings.Contains(name, "{") {
		tagged = name
		// The second colon keeps the metadata of {x} apart from the metadata of x. Redisson has one token
		// counter and one channel for both locks.
		metadata = protocol.RedissonMetadata + ":" + name
	}
	return protocol.NamedKeys(name, name, metadata, protocol.RedissonToken+tagged),
		"redisson_lock__channel:" + tagged, nil
}
