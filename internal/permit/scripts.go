package permit

import (
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// All is how many permits one takes that excludes all others: ALL in lua/permit.lua. No limit is as high.
const All = 1_000_000_000

var (
	//go:embed acquire.lua
	acquireText string
	//go:embed release.lua
	releaseText string
	//go:embed renew.lua
	renewText string
	//go:embed reduce.lua
	reduceText string
	//go:embed limit.lua
	limitText string
	//go:embed force.lua
	forceText string
	//go:embed inspect.lua
	inspectText string

	acquireScript = wire.NewScript(acquireText)
	releaseScript = wire.NewScript(releaseText)
	renewScript   = wire.NewScript(renewText)
	reduceScript  = wire.NewScript(reduceText)
	limitScript   = wire.NewScript(limitText)
	forceScript   = wire.NewScript(forceText)
	inspectScript = wire.NewScript(inspectText)
)

// Scripts are all of them, by name, for tests that look at requests.
func Scripts() map[string]*wire.Script {
	return map[string]*wire.Script{"acquire": acquireScript, "release": releaseScript, "renew": renewScript, "reduce": reduceScript,
		"limit": limitScript, "force": forceScript, "inspect": inspectScript}
}

// The first byte of a reply.
const (
	granted  = 'G'
	goesOn   = 'K' // the grant that the request named
	queued   = 'Q' // or refused, to an attempt that does not wait
	expired  = 'V' // the request came too late
	stale    = 'S' // the attempt was over already
	released = 'R'
	lost     = 'L'
)

// answer is a reply.
type answer struct {
	status byte
	now    int64         // Redis time in microseconds
	token  int64         // granted; queued: of the holder
	left   time.Duration // queued: until the first lease ends; negative: that is not to be waited for
	holder string        // queued: one of them; ""
	about  string        // queued: what the holder's session says of itself
	served []served      // other attempts of this session
}

// served is what another attempt was granted by the request of this one.
type served struct {
	owner string
	token int64
	lease time.Duration
}

// read is the answer in the outcome of a request. The error is the outcome's, or says that the reply is none that a script gives.
func read(o wire.Outcome) (a answer, err error) {
	if o.Err != nil {
		return answer{}, o.Err
	}
	first, about, _ := strings.Cut(o.Reply, "\n")
	words := strings.Split(first, " ")
	if len(words) < 2 || len(words[0]) != 1 {
		return answer{}, wire.Unexpected(o.Reply)
	}
	a.status, a.about = words[0][0], strings.TrimSpace(about)
	if a.now, err = strconv.ParseInt(words[1], 10, 64); err != nil {
		return answer{}, wire.Unexpected(o.Reply)
	}
	words = words[2:]
	ok := true
	switch {
	case a.status == granted && len(words) > 0:
		a.token, ok = protocol.Token(words[0])
		words = words[1:]
	case a.status == queued && len(words) > 2:
		if a.left, ok = protocol.Remaining(words[0]); ok {
			a.token, ok = protocol.Token(words[2])
		}
		if a.holder = words[1]; a.holder == "-" {
			a.holder = ""
		}
		words = words[3:]
	case strings.IndexByte("KVSRL", a.status) < 0:
		ok = false
	}
	for ok && len(words) > 2 {
		var s served
		s.owner = words[0]
		if s.token, ok = protocol.Token(words[1]); ok {
			s.lease, ok = protocol.Remaining(words[2])
		}
		a.served = append(a.served, s)
		words = words[3:]
	}
	if !ok || len(words) > 0 {
		return answer{}, wire.Unexpected(o.Reply)
	}
	return a, nil
}
