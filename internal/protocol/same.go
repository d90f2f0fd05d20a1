package protocol

import (
	"strings"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

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
