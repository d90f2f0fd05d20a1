// Package reply reads what the scripts of package permit reply. It sends nothing.
//
// Begin with Answer, the reply to a request for permits, or for their release. State is the reply to an
// operator who looks.
package reply

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// The first byte of a reply.
const (
	Granted  = 'G'
	GoesOn   = 'K' // the grant that the request named
	Queued   = 'Q' // or refused, to an attempt that does not wait
	Limited  = 'N' // never: there is another number of permits
	Expired  = 'V' // the request came too late
	Stale    = 'S' // the attempt was over already
	Released = 'R'
	Lost     = 'L'
)

// Answer is a reply.
type Answer struct {
	Status byte
	Now    int64         // Redis time in microseconds
	Token  int64         // granted; queued: of the holder
	Left   time.Duration // queued: until the first lease ends; negative: that is not to be waited for
	Holder string        // queued: one of them; ""
	About  string        // queued: what the holder's session says of itself
	Limit  int64         // limited: how many there are
	Deaf   bool          // queued: the server knows of nobody that listens for this session
	Served []Served      // other attempts of this session
}

// Served is what another attempt was granted by the request of this one.
type Served struct {
	Owner string
	Token int64
	Lease time.Duration
}

// Read is the answer in the outcome of a request. The error is the outcome's, or says that the reply is none
// that a script gives.
func Read(o wire.Outcome) (a Answer, err error) {
	if o.Err != nil {
		return Answer{}, o.Err
	}
	first, about, _ := strings.Cut(o.Reply, "\n")
	words := strings.Split(first, " ")
	words[0], a.Deaf = strings.CutSuffix(words[0], "D")
	if len(words) < 2 || len(words[0]) != 1 {
		return Answer{}, wire.Unexpected(o.Reply)
	}
	a.Status, a.About = words[0][0], strings.TrimSpace(about)
	if a.Now, err = strconv.ParseInt(words[1], 10, 64); err != nil {
		return Answer{}, wire.Unexpected(o.Reply)
	}
	words = words[2:]
	ok := true
	switch {
	case a.Status == Granted && len(words) > 0:
		a.Token, ok = protocol.Token(words[0])
		words = words[1:]
	case a.Status == Queued && len(words) > 2:
		if a.Left, ok = protocol.Remaining(words[0]); ok {
			a.Token, ok = protocol.Token(words[2])
		}
		if a.Holder = words[1]; a.Holder == "-" {
			a.Holder = ""
		}
		words = words[3:]
	case a.Status == Limited && len(words) == 1:
		a.Limit, ok = protocol.Token(words[0])
		words = nil
	case strings.IndexByte("KVSRL", a.Status) < 0:
		ok = false
	}
	for ok && len(words) > 2 {
		var s Served
		s.Owner = words[0]
		if s.Token, ok = protocol.Token(words[1]); ok {
			s.Lease, ok = protocol.Remaining(words[2])
		}
		a.Served = append(a.Served, s)
		words = words[3:]
	}
	if !ok || len(words) > 0 {
		return Answer{}, wire.Unexpected(o.Reply)
	}
	return a, nil
}
