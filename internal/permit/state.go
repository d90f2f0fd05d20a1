package permit

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// State is what Redis knows of permits at one instant.
type State struct {
	Limit   int64 // 0: nobody has used them lately
	Used    int64
	Holders []Party // the one whose lease ends first is the first
	Queue   []Party // in order
}

// Party is one attempt that holds permits, or waits for some.
type Party struct {
	Owner     string // owner field
	Session   string
	Host      string
	PID       int
	Label     string
	N         int64         // permits
	Token     int64         // of a holder
	Remaining time.Duration // of a holder's lease
	Age       time.Duration // since one that waits has asked
}

// Inspect asks Redis. It changes nothing, and blocks for one request, not longer than ctx.
func (ps *Permits) Inspect(ctx context.Context) (State, error) {
	reply, err := ps.ask(ctx, inspectScript)
	if err != nil {
		return State{}, err
	}
	st, err := decode(reply)
	if err != nil {
		return State{}, ps.kind.Failed(ps.keys, wire.Unexpected(reply))
	}
	return st, nil
}

// decode reads the reply of inspect.lua.
func decode(reply string) (st State, err error) {
	var raw struct {
		Now, Limit string
		Holders    []string
		Held       map[string]string
		Queue      []string
		About      map[string]string
	}
	if err := json.Unmarshal([]byte(reply), &raw); err != nil {
		return State{}, err
	}
	now, _ := strconv.ParseFloat(raw.Now, 64)
	st.Limit = protocol.TokenOrZero(raw.Limit)
	micros := func(n float64) time.Duration {
		return time.Duration(max(0, min(n, float64(protocol.MaxLeft.Microseconds())))) * time.Microsecond
	}
	for i := 0; i+1 < len(raw.Holders); i += 2 {
		end, _ := strconv.ParseFloat(raw.Holders[i+1], 64)
		n, rest, _ := strings.Cut(raw.Held[raw.Holders[i]], " ")
		if end <= now || rest == "" {
			continue // nobody has cleared it away yet
		}
		token, about, _ := strings.Cut(rest, " ")
		p := party(raw.Holders[i], about)
		p.N, p.Token, p.Remaining = protocol.TokenOrZero(n), protocol.TokenOrZero(token), micros(end-now)
		st.Used += p.N
		st.Holders = append(st.Holders, p)
	}
	for i := 0; i+1 < len(raw.Queue); i += 2 {
		n, rest, _ := strings.Cut(raw.About[raw.Queue[i]], " ")
		_, rest, _ = strings.Cut(rest, " ") // the lease
		_, about, _ := strings.Cut(rest, " ")
		p := party(raw.Queue[i], about)
		p.N = protocol.TokenOrZero(n)
		if ticket, err := strconv.ParseFloat(raw.Queue[i+1], 64); err == nil { // a ticket is the time, or later
			p.Age = micros(now - ticket)
		}
		st.Queue = append(st.Queue, p)
	}
	return st, nil
}

func party(owner, about string) (p Party) {
	p.Owner = owner
	p.Session, _, _ = strings.Cut(owner, ":")
	p.PID, p.Host, p.Label = protocol.About(about)
	return p
}

// Which holders Force means.
const (
	Writer  = "w" // the one that has all permits
	Readers = "r" // those that have fewer
)

// Force takes permits back from holders, and returns how many there were: the Writer, the Readers, or the one with this token. They learn that
// they have lost them. It blocks for one request, not longer than ctx.
func (ps *Permits) Force(ctx context.Context, which string) (int, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return 0, err
	}
	reply, err := ps.ask(ctx, forceScript, which, ps.s.Args.Channels, ps.s.Args.Keep)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(reply)
	if err != nil {
		return 0, ps.kind.Failed(ps.keys, wire.Unexpected(reply))
	}
	return n, nil
}

// ForceToken is Force of the one holder that has this token.
func (ps *Permits) ForceToken(ctx context.Context, token int64) (bool, error) {
	if token <= 0 {
		if err := ps.CheckUse(ctx); err != nil {
			return false, err
		}
		return false, ps.kind.Named(ps.keys.Name, fmt.Errorf("no holder has the token %d", token))
	}
	n, err := ps.Force(ctx, protocol.Number(token))
	return n > 0, err
}

// SetLimit sets how many permits there are, or only if Redis has no number. It blocks for one request, not longer than ctx.
func (ps *Permits) SetLimit(ctx context.Context, n int64, only bool) (bool, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return false, err
	}
	try := "0"
	if only {
		try = "1"
	}
	reply, err := ps.ask(ctx, limitScript, n, try, ps.s.Args.Channels, ps.s.Args.Keep, ps.s.Attempt())
	if err == nil && reply != "S" && reply != "N" {
		err = ps.kind.Failed(ps.keys, wire.Unexpected(reply))
	}
	return reply == "S", err
}

// ask sends a request that is about no grant of ours, and waits for the reply, not longer than ctx.
func (ps *Permits) ask(ctx context.Context, sc *wire.Script, argv ...any) (string, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return "", err
	}
	s := ps.s
	if !s.Begin() {
		return "", ps.kind.Named(ps.keys.Name, failure.ErrClosed)
	}
	o, answered := wakeup.Call(ctx, func() wire.Outcome {
		defer s.End()
		return s.Link.Call(ctx, sc, &protocol.Same{Script: sc, Keys: ps.keys, Argv: argv}, wire.Tries, nil)
	})
	switch {
	case !answered:
		return "", ps.kind.Named(ps.keys.Name, failure.OfContext(ctx))
	case o.Err != nil:
		return "", ps.kind.Failed(ps.keys, o.Err)
	}
	return o.Reply, nil
}
