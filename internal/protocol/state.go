package protocol

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// State is the data that Redis has of a lock of any kind at one moment. rlock.State has the same fields,
// with documentation, except for the last two.
type State struct {
	Name string
	Held bool
	Holder
	Holders []Holder
	Queue   []Waiter
	Limit   int

	Floor int64    // the highest token that was granted or reserved; a later holder gets a higher one
	Over  []string // owner fields of the attempts that have a tombstone
}

// Holder has the fields of rlock.Holder, which documents them.
type Holder struct {
	Owner     string
	Session   string
	Host      string
	PID       int
	Label     string
	Note      string
	Protocol  int
	Library   string
	Count     int
	Shared    bool
	Permits   int
	Token     int64
	Remaining time.Duration
	Lingers   bool
	Unlocked  bool
	Servers   int
}

// Waiter has the fields of rlock.Waiter, which documents them.
type Waiter struct {
	Owner    string
	Session  string
	Host     string
	PID      int
	Label    string
	Note     string
	Protocol int
	Library  string
	Shared   bool
	Permits  int
	Age      time.Duration
}

// DecodeLock reads the reply of lock/inspect.
func DecodeLock(name, reply string) (State, error) {
	var raw struct {
		Now           string
		Lock, Waiters map[string]string
		Queue, Leases []string
	}
	if err := decode(reply, &raw); err != nil {
		return State{}, err
	}
	lock, now := raw.Lock, float(raw.Now)
	p := permits{TokenOrZero(lock["limit"])}
	st, granted := State{Name: name, Limit: p.shown()}, TokenOrZero(lock["token"])
	if end := float(lock["ends"]); lock["owner"] != "" && end > now {
		h := Holder{Owner: lock["owner"], Token: granted, Remaining: micros(end - now)}
		_, h.Lingers = lock["lingers"]
		if h.Shared, h.Permits = p.of(lock["permits"]); p.limit == 0 {
			h.Count, _ = strconv.Atoi(lock["count"])
		}
		st.hold(h, lock["info"])
	}
	for i := 0; i+1 < len(raw.Leases); i += 2 {
		h, end := Holder{Owner: raw.Leases[i]}, float(raw.Leases[i+1])
		part := words(lock["held "+h.Owner], 3) // PERMITS, TOKEN, LINGERS and INFO, see lock.lua
		if end <= now || part[1] == "" {
			continue // the lease has ended or the field is missing, so a later request removes this holder
		}
		h.Shared, h.Permits = p.of(part[0])
		h.Token, h.Lingers, h.Remaining = TokenOrZero(part[1]), part[2] != "-", micros(end-now)
		st.hold(h, part[3])
	}
	slices.SortStableFunc(st.Holders, func(a, b Holder) int { return cmp.Compare(a.Remaining, b.Remaining) })
	if st.tokens(max(granted, TokenOrZero(lock["floor"])), lock); st.Held {
		st.Holder = st.Holders[0]
	} else {
		st.Token = granted
	}
	for owner, age := range waiting(raw.Queue, now) {
		part := words(raw.Waiters[owner], 4) // ALIVE, SIZE, LEASE, NONCE and INFO, see queue.lua
		w := newWaiter(owner, age, part[4])
		size, _ := strconv.Atoi(part[1]) // number of goroutines that wait with this attempt
		if p.limit != 0 {
			w.Shared, w.Permits = p.of(part[1])
			size = 1
		}
		for range min(max(size, 1), Block) {
			st.Queue = append(st.Queue, w)
		}
	}
	return st, nil
}

// permits converts numbers of permits to the form that State has. The limit is 0 for a lock without permits,
// and All for a read-write lock.
type permits struct{ limit int64 }

// shown returns the limit, or 0 if State shows no limit.
func (p permits) shown() int {
	if p.limit == All {
		return 0
	}
	return int(p.limit)
}

// of reads n, the number of permits of a holder or waiter. shared is true for a reader of a read-write lock.
// For a semaphore, number is the number of permits of this holder or waiter. For any other lock, number is 0.
func (p permits) of(n string) (shared bool, number int) {
	switch n := TokenOrZero(n); {
	case p.limit == 0 || n == All:
		return false, 0
	case p.limit == All:
		return true, 0
	default:
		return false, int(n)
	}
}

// DecodeRedisson reads the reply of redisson/inspect.
func DecodeRedisson(name, reply string) (State, error) {
	var raw struct {
		TTL            float64 // a number in the JSON of the script, not a string
		Lock, Metadata map[string]string
	}
	if err := decode(reply, &raw); err != nil {
		return State{}, err
	}
	st := State{Name: name}
	h := Holder{Remaining: micros(1000 * raw.TTL)}
	for field, value := range raw.Lock {
		switch field {
		case "t": // token; missing if a JVM holds the lock
			h.Token = TokenOrZero(value)
		case "d", "s":
		default:
			h.Owner = field
			h.Count, _ = strconv.Atoi(value)
		}
	}
	if h.Owner != "" { // a hash without an owner does not hold the lock
		st.hold(h, raw.Lock["d"])
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

// hold adds a holder with its holder info.
func (st *State) hold(h Holder, info string) {
	by := ReadInfo(h.Owner, info)
	h.Session, h.PID, h.Host, h.Label, h.Note = by.Session, by.PID, by.Host, by.Label, by.Note
	h.Protocol, h.Library = by.Protocol, by.Library
	h.Unlocked = strings.HasSuffix(h.Owner, "~")
	st.Holders = append(st.Holders, h)
	st.Held, st.Holder = true, st.Holders[0]
}

// tokens sets the highest token, and reads the tombstones from the fields of a hash.
func (st *State) tokens(floor int64, hash map[string]string) {
	st.Floor = floor
	for field := range hash {
		if strings.Contains(field, ":") && !strings.Contains(field, " ") {
			st.Over = append(st.Over, field)
		}
	}
}

// waiting yields the attempts in a queue, each with its age. queue has attempts and tickets in turn.
func waiting(queue []string, now float64) iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		for i := 0; i+1 < len(queue); i += 2 {
			var age time.Duration
			// A ticket is the Redis time in µs at which the attempt was queued, or a little more, because
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
	by := ReadInfo(owner, info)
	w.Session, w.PID, w.Host, w.Label, w.Note = by.Session, by.PID, by.Host, by.Label, by.Note
	w.Protocol, w.Library = by.Protocol, by.Library
	return w
}

func float(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// micros returns n microseconds as a duration from 0 to MaxLeft.
func micros(n float64) time.Duration {
	return time.Duration(max(0, min(n, float64(MaxLeft.Microseconds())))) * time.Microsecond
}

// words returns the first n words of s, and then the rest of s.
func words(s string, n int) []string {
	return append(strings.SplitN(s, " ", n+1), make([]string, n)...) // at least n+1 elements
}
