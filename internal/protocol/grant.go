package protocol

import (
	"strings"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// Grant names what Redis granted or may have granted, as script arguments.
type Grant struct {
	Owner any   // string: the attempt's owner field
	Token any   // int64; '' where it is not known, or any that the attempt was granted is meant
	Used  any   // string or int64: the last token used of the block; nil: none was; '': unknown, none is given back
	Late  int64 // Redis time until which a copy of the lock request may still arrive; 0: none is under way
	Until int64 // Redis time until which the lock stays taken though no session holds it; 0: it is released
}

// Unnamed is the grant without its token: whatever the attempt was granted, also by a late copy of its
// request.
func (g Grant) Unnamed() Grant {
	g.Token, g.Used = "", ""
	return g
}

func (g *Grant) late() any {
	if g.Late == 0 {
		return "0"
	}
	return g.Late
}

func (g *Grant) used() any {
	if g.Used == nil {
		return "0"
	}
	return g.Used
}

// Release is the request that ends a grant. It also rolls back an attempt whose outcome its session never
// learned.
type Release struct {
	Script *wire.Script
	Keys   *Keys
	Grant
	Keep any // string: milliseconds for which the metadata of an idle lock is kept

	alone bool // of Migrating
}

func (r *Release) argv() []any {
	argv := []any{r.Owner, r.Token, r.Keys.Channel, r.Keep, r.late(), r.used()}
	if r.Until != 0 {
		argv = append(argv, r.Until)
	}
	return argv
}

// Request makes a copy. All copies are the same.
func (r *Release) Request(time.Time) wire.Request {
	return r.Keys.Request(r.Script, r.argv()...)
}

// Migrating is a Release that names only the hash and the metadata where a Cluster refuses more. While a slot
// moves, all keys of a request must exist, and a queue often does not. That way, a lock that no attempt waits
// for is released.
type Migrating Release

// Request makes a copy.
func (r *Migrating) Request(now time.Time) wire.Request {
	all := (*Release)(r)
	if r.alone {
		return r.Keys.RequestAlone(r.Script, all.argv()...)
	}
	return all.Request(now)
}

// Failed is told why the last copy was not answered, and that it will be sent again.
func (r *Migrating) Failed(err error) {
	r.alone = !r.alone && r.Keys.Queued && strings.HasPrefix(err.Error(), "TRYAGAIN ")
}

// Same is a request whose copies are all the same.
type Same struct {
	Script *wire.Script
	Keys   *Keys
	Argv   []any

	alone bool
}

// Request makes a copy.
func (s *Same) Request(time.Time) wire.Request {
	if s.alone {
		return s.Keys.RequestAlone(s.Script, s.Argv...)
	}
	return s.Keys.Request(s.Script, s.Argv...)
}

// Failed is told why the last copy was not answered, and that it will be sent again. A Cluster refuses a
// request for keys of which some exist while their slot moves, and a queue often does not exist: a lock that
// no attempt waits for is released without.
func (s *Same) Failed(err error) {
	s.alone = !s.alone && s.Keys.Queued && strings.HasPrefix(err.Error(), "TRYAGAIN ")
}
