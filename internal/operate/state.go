package operate

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
)

// Permits is what Redis knows of permits at one instant.
type Permits struct {
	Limit   int64 // 0: they were not used lately
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
	Lingers   bool          // a holder's session may keep them while no goroutine has them
	Age       time.Duration // since one that waits has asked
}

// DecodePermits reads the reply of inspect.lua.
func DecodePermits(reply string) (st Permits, err error) {
	var raw struct {
		Now, Limit string
		Holders    []string
		Held       map[string]string
		Queue      []string
		About      map[string]string
	}
	if err := json.Unmarshal([]byte(reply), &raw); err != nil {
		return Permits{}, err
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
			continue // it was not cleared away yet
		}
		token, about, _ := strings.Cut(rest, " ")
		token, _, lingers := strings.Cut(token, "+")
		p := party(raw.Holders[i], about)
		p.N, p.Token, p.Remaining = protocol.TokenOrZero(n), protocol.TokenOrZero(token), micros(end-now)
		p.Lingers = lingers
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
