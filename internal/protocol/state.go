package protocol

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// State is what Redis knows of a lock of any kind at one instant. rlock.State is the same, with the
// documentation, but for the last two fields.
type State struct {
	Name string
	Held bool
	Holder
	Holders []Holder
	Queue   []Waiter
	Limit   int

	Floor int64    // no later holder has this token, or a lower one
	Over  []string // attempts that are over though a copy of their request may yet come, or that were forced
}

// Holder is rlock.Holder.
type Holder struct {
	Owner     string
	Session   string
	Host      string
	PID       int
	Label     string
	Count     int
	Shared    bool
	Permits   int
	Token     int64
	Remaining time.Duration
	Lingers   bool
	Servers   int
}

// Waiter is rlock.Waiter.
type Waiter struct {
	Owner   string
	Session string
	Host    string
	PID     int
	Label   string
	Shared  bool
	Permits int
	Age     time.Duration
}

// DecodeState reads the reply of an inspect script.
func DecodeState(name, reply string) (State, error) {
	var raw struct {
		TTL            *float64 // as cjson writes it; nil: these are permits
		Lock, Metadata map[string]string
		Now            string
		Holders        []string
		Held           map[string]string
		Queue          []string
		About          map[string]string
	}
	if err := json.Unmarshal([]byte(reply), &raw); err != nil {
		return State{}, fmt.Errorf("unexpected reply %q: %w", reply, err)
	}
	st, limit := State{Name: name}, TokenOrZero(raw.Metadata["n"]) // a lock has none
	now, _ := strconv.ParseFloat(raw.Now, 64)
	if limit != All {
		st.Limit = int(limit)
	}
	// of is how many permits a number is, as the two fields say it.
	of := func(n string) (shared bool, permits int) {
		switch n := TokenOrZero(n); {
		case n == All:
			return false, 0
		case limit == All:
			return true, 0
		default:
			return false, int(n)
		}
	}
	if len(raw.Lock) > 0 {
		st.Holders = []Holder{holderOf(raw.Lock, *cmp.Or(raw.TTL, new(float64)))}
	}
	for i := 0; i+1 < len(raw.Holders); i += 2 {
		h := Holder{Owner: raw.Holders[i]}
		end, _ := strconv.ParseFloat(raw.Holders[i+1], 64)
		part := words(raw.Held[h.Owner], 2)
		if end <= now || part[1] == "" {
			continue // it was not cleared away yet
		}
		h.Shared, h.Permits = of(part[0])
		token, _, lingers := strings.Cut(part[1], "+")
		h.Token, h.Lingers, h.Remaining = TokenOrZero(token), lingers, micros(end-now)
		h.Session, h.PID, h.Host, h.Label = Identity(h.Owner, part[2])
		st.Holders = append(st.Holders, h)
	}
	if st.Held = len(st.Holders) > 0; st.Held {
		st.Holder = st.Holders[0]
	} else if raw.TTL != nil {
		st.Token = TokenOrZero(raw.Metadata["t"])
	}
	st.Floor = TokenOrZero(raw.Metadata["t"])
	for field := range raw.Metadata {
		if strings.Contains(field, ":") {
			st.Over = append(st.Over, field)
		}
	}
	for i := 0; i+1 < len(raw.Queue); i += 2 {
		w := Waiter{Owner: raw.Queue[i]}
		part := words(raw.About[w.Owner], 3) // size, lease, nonce
		w.Session, w.PID, w.Host, w.Label = Identity(w.Owner, part[3])
		// A ticket is the time, or later.
		if ticket, err := strconv.ParseFloat(raw.Queue[i+1], 64); err == nil {
			w.Age = micros(now - ticket)
		}
		n := 1
		if raw.TTL == nil {
			w.Shared, w.Permits = of(part[0])
		} else {
			n, _ = strconv.Atoi(part[0]) // goroutines that asked with one request
		}
		for range min(max(n, 1), Block) {
			st.Queue = append(st.Queue, w)
		}
	}
	return st, nil
}

// holderOf reads the hash of a lock, which lives for so many milliseconds.
func holderOf(lock map[string]string, ttl float64) (h Holder) {
	for field, value := range lock {
		switch field {
		case "k":
			h.Lingers = true
		case "t": // none if another library holds it
			h.Token = TokenOrZero(value)
		case "d", "s", "w":
		default:
			h.Owner = field
			h.Count, _ = strconv.Atoi(value)
		}
	}
	h.Session, h.PID, h.Host, h.Label = Identity(h.Owner, lock["d"])
	h.Remaining = micros(1000 * ttl)
	return h
}

// micros is what is left of a time, as a script says it.
func micros(n float64) time.Duration {
	return time.Duration(max(0, min(n, float64(MaxLeft.Microseconds())))) * time.Microsecond
}

// words are the first n words of s, and what is behind them.
func words(s string, n int) []string {
	return append(strings.SplitN(s, " ", n+1), make([]string, n)...) // there may be fewer
}

// Identity returns the session id in an owner field, and the process id, host and label in its holder info,
// which has the form PID@HOST LABEL.
func Identity(owner, about string) (session string, pid int, host, label string) {
	session, _, _ = strings.Cut(owner, ":")
	id, label, _ := strings.Cut(about, " ")
	p, host, _ := strings.Cut(id, "@")
	pid, _ = strconv.Atoi(p)
	return session, pid, host, label
}
