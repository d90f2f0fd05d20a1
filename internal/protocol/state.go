package protocol

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// State is what Redis knows of a lock at one instant. rlock.State is the same, with the documentation.
type State struct {
	Name      string
	Held      bool
	Owner     string
	Session   string
	Host      string
	PID       int
	Label     string
	Count     int
	Remaining time.Duration
	Token     int64
	Queue     []Waiter
	Servers   int // of a RedLock: that have this holder
	Lingers   bool
	Floor     int64 // no later holder has this token, or a lower one

	Over []string // attempts that are over though a copy of their request may yet come, or that were forced
}

// Waiter is one waiter of a lock that queues in Redis.
type Waiter struct {
	Owner   string
	Session string
	Host    string
	PID     int
	Label   string
	Age     time.Duration
}

// DecodeState reads the reply of an inspect script.
func DecodeState(name, reply string) (State, error) {
	var raw struct {
		TTL            float64 // as cjson writes it
		Lock, Metadata map[string]string
		Now            string
		Queue          []string
		About          map[string]string
	}
	if err := json.Unmarshal([]byte(reply), &raw); err != nil {
		return State{}, fmt.Errorf("unexpected reply %q: %w", reply, err)
	}
	st := State{Name: name, Held: len(raw.Lock) > 0}
	token := raw.Metadata["t"]
	if st.Held {
		token = raw.Lock["t"] // none if another library holds it
	}
	for field, value := range raw.Lock {
		switch field {
		case "d":
			st.PID, st.Host, st.Label = About(value)
		case "k":
			st.Lingers = true
		case "t", "s", "w":
		default:
			st.Owner = field
			st.Session, _, _ = strings.Cut(field, ":")
			st.Count, _ = strconv.Atoi(value)
		}
	}
	st.Token, st.Floor = TokenOrZero(token), TokenOrZero(raw.Metadata["t"])
	for field := range raw.Metadata {
		if strings.Contains(field, ":") {
			st.Over = append(st.Over, field)
		}
	}
	now, _ := strconv.ParseFloat(raw.Now, 64)
	for i := 0; i+1 < len(raw.Queue); i += 2 {
		w := Waiter{Owner: raw.Queue[i]}
		size, rest, _ := strings.Cut(raw.About[w.Owner], " ")
		_, rest, _ = strings.Cut(rest, " ") // the lease
		_, about, _ := strings.Cut(rest, " ")
		w.Session, _, _ = strings.Cut(w.Owner, ":")
		w.PID, w.Host, w.Label = About(about)
		if ticket, err := strconv.ParseFloat(raw.Queue[i+1], 64); err == nil { // a ticket is the time, or later
			w.Age = time.Duration(max(0, min(now-ticket, float64(MaxLeft.Microseconds())))) * time.Microsecond
		}
		n, _ := strconv.Atoi(size) // goroutines that asked with one request
		for range min(max(n, 1), Block) {
			st.Queue = append(st.Queue, w)
		}
	}
	st.Remaining = time.Duration(max(0, min(raw.TTL, float64(MaxLeft.Milliseconds())))) * time.Millisecond
	return st, nil
}

// About reads what a session said of itself: pid@host label.
func About(about string) (pid int, host, label string) {
	id, label, _ := strings.Cut(about, " ")
	p, host, _ := strings.Cut(id, "@")
	pid, _ = strconv.Atoi(p)
	return pid, host, label
}
