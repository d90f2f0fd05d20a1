package engine

import (
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// All is how many permits one takes that excludes all others.
const All = protocol.All

// Scripts are those of a kind.
type Scripts struct {
	Acquire, Renew, Release *wire.Script
	Inspect, Force          *wire.Script

	Remain *wire.Script // a Release that leaves what is held taken until a time; nil: nothing can
	Reduce *wire.Script // goes on with one permit of All; nil: there are no others than All
}

// Shares are the scripts of permits, which are leases in a sorted set.
var Shares = Scripts{
	Acquire: wire.Named("permit/acquire"),
	Renew:   wire.Named("permit/renew"),
	Release: wire.Named("permit/release"),
	Inspect: wire.Named("permit/inspect"),
	Force:   wire.Named("permit/force"),
	Remain:  wire.Named("permit/remain"),
	Reduce:  wire.Named("permit/reduce"),
}

// Hash are the scripts of locks, which are hashes with an owner field and a hold count.
var Hash = Scripts{
	Acquire: wire.Named("lock/acquire"),
	Renew:   wire.Named("lock/keep"),
	Release: wire.Named("lock/release"),
	Inspect: wire.Named("lock/inspect"),
	Force:   wire.Named("lock/force"),
	Remain:  wire.Named("lock/remain"),
}
