package protocol

import (
	"encoding/json"
	"fmt"
	"iter"
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

// DecodeLock reads the reply of lock/inspect.
func DecodeLock(name, reply string) (State, error) {
	var raw struct {
		Now           string
		Lock, Waiters map[string]string
		Queue         []string
	}
	if err := decode(reply, &raw); err != nil {
		return State{}, err
	}
	st, now := State{Name: name}, float(raw.Now)
	granted := TokenOrZero(raw.Lock["token"])
	if end := float(raw.Lock["ends"]); raw.Lock["owner"] != "" && end > now {
		h := Holder{Owner: raw.Lock["owner"], Token: granted, Remaining: micros(end - now)}
		h.Count, _ = strconv.Atoi(raw.Lock["count"])
		_, h.Lingers = raw.Lock["lingers"]
		h.Session, h.PID, h.Host, h.Label = Identity(h.Owner, raw.Lock["info"])
		st.hold(h)
	} else {
		st.Token = granted
	}
	st.tokens(max(granted, TokenOrZero(raw.Lock["floor"])), raw.Lock)
	for owner, age := range waiting(raw.Queue, now) {
		part := words(raw.Waiters[owner], 4) // alive, size, lease, nonce
		w := newWaiter(owner, age, part[4])
		n, _ := strconv.Atoi(part[1]) // goroutines that wait with one request
		for range min(max(n, 1), Block) {
			st.Queue = append(st.Queue, w)
		}
	}
	return st, nil
}

// DecodePermits reads the reply of permit/inspect.
func DecodePermits(name, reply string) (State, error) {
	var raw struct {
		Now                   string
		Metadata, Held, About map[string]string
		Holders, Queue        []string
	}
	if err := decode(reply, &raw); err != nil {
		return State{}, err
	}
	st, now, limit := State{Name: name}, float(raw.Now), TokenOrZero(raw.Metadata["n"])
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
	for i := 0; i+1 < len(raw.Holders); i += 2 {
		h := Holder{Owner: raw.Holders[i]}
		end := float(raw.Holders[i+1])
		part := words(raw.Held[h.Owner], 2)
		if end <= now || part[1] == "" {
			continue // it was not cleared away yet
		}
		h.Shared, h.Permits = of(part[0])
		token, _, lingers := strings.Cut(part[1], "+")
		h.Token, h.Lingers, h.Remaining = TokenOrZero(token), lingers, micros(end-now)
		h.Session, h.PID, h.Host, h.Label = Identity(h.Owner, part[2])
		st.hold(h)
	}
	st.tokens(TokenOrZero(raw.Metadata["t"]), raw.Metadata)
	for owner, age := range waiting(raw.Queue, now) {
		part := words(raw.About[owner], 3) // permits, lease, nonce
		w := newWaiter(owner, age, part[3])
		w.Shared, w.Permits = of(part[0])
		st.Queue = append(st.Queue, w)
	}
	return st, nil
}

// DecodeRedisson reads the reply of redisson/inspect.
func DecodeRedisson(name, reply string) (State, error) {
	var raw struct {
		TTL            float64 // as cjson writes it
		Lock, Metadata map[string]string
	}
	if err := decode(reply, &raw); err != nil {
		return State{}, err
	}
	st := State{Name: name}
	if len(raw.Lock) > 0 {
		h := Holder{Remaining: micros(1000 * raw.TTL)}
		for field, value := range raw.Lock {
			switch field {
			case "t": // missing if a JVM holds it
				h.Token = TokenOrZero(value)
			case "d", "s":
			default:
				h.Owner = field
				h.Count, _ = strconv.Atoi(value)
			}
		}
		h.Session, h.PID, h.Host, h.Label = Identity(h.Owner, raw.Lock["d"])
		st.hold(h)
	} else {
		st.Token = TokenOrZero(raw.Metadata["t"])
	}
	st.tokens(TokenOrZero(raw.Metadata["t"]), raw.Metadata)
	return st, nil
}

func decode(reply string, into any) error {
	if err := json.Unmarshal([]byte(reply), into); err != nil {
		return fmt.Errorf("unexpected reply %q: %w", reply, err)
	}
	return nil
}

// hold adds a holder.
func (st *State) hold(h Holder) {
	st.Holders = append(st.Holders, h)
	st.Held, st.Holder = true, st.Holders[0]
}

// tokens takes in the highest token, and the tombstones in a hash.
func (st *State) tokens(floor int64, hash map[string]string) {
	st.Floor = floor
	for field := range hash {
		if strings.Contains(field, ":") {
			st.Over = append(st.Over, field)
		}
	}
}

// waiting yields the attempts in a queue, each with its age. queue has attempts and tickets in turn.
func waiting(queue []string, now float64) iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		for i := 0; i+1 < len(queue); i += 2 {
			var age time.Duration
			// A ticket is the Redis time in µs at which the attempt was queued, or a little more, since
			// tickets must increase.
			if ticket, err := strconv.ParseFloat(queue[i+1], 64); err == nil {
				age = micros(now - ticket)
			}
			if !yield(queue[i], age) {
				return
			}
		}
	}
}

func newWaiter(owner string, age time.Duration, info string) Waiter {
	w := Waiter{Owner: owner, Age: age}
	w.Session, w.PID, w.Host, w.Label = Identity(owner, info)
	return w
}

func float(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
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
