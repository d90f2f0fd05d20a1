package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// State is what Redis knows of a lock at one instant.
type State struct {
	Name      string
	Held      bool
	Owner     string // session id and attempt
	Session   string
	Host      string
	PID       int
	Label     string
	Count     int
	Remaining time.Duration
	Token     int64
	Queue     []Waiting
}

// Waiting is one waiter of a lock that queues in Redis.
type Waiting struct {
	Owner   string
	Session string
	Host    string
	PID     int
	Label   string
	Age     time.Duration
}

// plain is a request whose copies are all the same.
type plain struct {
	keys *Keys
	sc   *wire.Script
	argv []any
}

func (p *plain) Request(time.Time) wire.Request { return p.keys.request(p.sc, p.argv...) }

// exchange runs a script on the lock; the caller may leave before the answer.
func (m *Mutex) exchange(ctx context.Context, sc *wire.Script, argv ...any) (string, error) {
	if err := m.check(ctx); err != nil {
		return "", err
	}
	fail := func(err error) (string, error) { return "", &nameError{name: m.keys.Name, err: err} }
	s := m.s
	if ctx.Err() != nil {
		return fail(ctxErr(ctx))
	}
	if !s.begin() {
		return fail(ErrClosed)
	}
	done := make(chan wire.Outcome, 1)
	go func() {
		defer s.end()
		done <- s.call(ctx, sc, &plain{m.keys, sc, argv}, wire.Tries, nil)
	}()
	select {
	case o := <-done:
		if o.Err != nil {
			return "", m.keys.failed(o.Err)
		}
		return o.Reply, nil
	case <-ctx.Done():
		return fail(ctxErr(ctx))
	}
}

func (m *Mutex) Inspect(ctx context.Context) (State, error) {
	if err := m.check(ctx); err != nil {
		return State{}, err
	}
	reply, err := m.exchange(ctx, m.p.Inspect)
	if err != nil {
		return State{}, err
	}
	if m.s.quorum != nil {
		return m.s.quorum.state(m.keys.Name, reply)
	}
	st, err := decodeState(m.keys.Name, reply)
	if err != nil {
		err = &nameError{name: m.keys.Name, err: err}
	}
	return st, err
}

func decodeState(name, reply string) (State, error) {
	var raw struct {
		TTL          float64 // as cjson writes it
		Lock, Memory map[string]string
		Now          string
		Queue        []string
		About        map[string]string
	}
	if err := json.Unmarshal([]byte(reply), &raw); err != nil {
		return State{}, fmt.Errorf("unexpected reply %q: %w", reply, err)
	}
	st := State{Name: name, Held: len(raw.Lock) > 0}
	token := raw.Memory["t"]
	if st.Held {
		token = raw.Lock["t"] // none if another library holds it
	}
	for field, value := range raw.Lock {
		switch field {
		case "d":
			st.PID, st.Host, st.Label = aboutHolder(value)
		case "t", "s":
		default:
			st.Owner = field
			st.Session, _, _ = strings.Cut(field, ":")
			st.Count, _ = strconv.Atoi(value)
		}
	}
	st.Token, _ = tokenOf(token)
	now, _ := strconv.ParseFloat(raw.Now, 64)
	for i := 0; i+1 < len(raw.Queue); i += 2 {
		w := Waiting{Owner: raw.Queue[i]}
		size, rest, _ := strings.Cut(raw.About[w.Owner], " ")
		_, rest, _ = strings.Cut(rest, " ") // the lease
		_, about, _ := strings.Cut(rest, " ")
		w.Session, _, _ = strings.Cut(w.Owner, ":")
		w.PID, w.Host, w.Label = aboutHolder(about)
		if ticket, err := strconv.ParseFloat(raw.Queue[i+1], 64); err == nil { // a ticket is the time, or later
			w.Age = time.Duration(max(0, min(now-ticket, float64(maxLeft.Microseconds())))) * time.Microsecond
		}
		n, _ := strconv.Atoi(size) // goroutines that asked with one request
		for range min(max(n, 1), maxGroup) {
			st.Queue = append(st.Queue, w)
		}
	}
	st.Remaining = time.Duration(max(0, min(raw.TTL, float64(maxLeft.Milliseconds())))) * time.Millisecond
	return st, nil
}

func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) { return m.force(ctx) }

// ForceUnlockToken frees the lock only if the holder is the one whose token Inspect has shown.
func (m *Mutex) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	if err := m.check(ctx); err != nil {
		return false, err
	}
	if token <= 0 {
		return false, &nameError{name: m.keys.Name, err: fmt.Errorf("ForceUnlockToken: a token is above 0, not %d", token)}
	}
	if m.s.quorum == nil {
		return m.force(ctx, token)
	}
	// Its servers may each have another token for one holder.
	st, err := m.Inspect(ctx)
	if err != nil || !st.Held || st.Token != token {
		return false, err
	}
	return m.force(ctx, st.Owner)
}

// force frees the lock; if it is told which holder was seen, only that one's.
func (m *Mutex) force(ctx context.Context, seen ...any) (bool, error) {
	if err := m.check(ctx); err != nil {
		return false, err
	}
	reply, err := m.exchange(ctx, m.p.Force, append([]any{m.keys.channel, m.s.memory}, seen...)...)
	return strings.Contains(reply, "R"), err // a line for each server
}
