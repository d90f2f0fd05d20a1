package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockline/lockline/rlock"
)

// lockState is a lock as the commands show it, and their JSON.
type lockState struct {
	Name        string `json:"name"`
	NameBytes   []byte `json:"name_bytes,omitempty"` // base64, of a name that is not UTF-8
	Kind        string `json:"kind"`
	Server      string `json:"server,omitempty"` // of a RedLock's part, by inspect --also
	Held        bool   `json:"held"`
	Holder      *party `json:"holder,omitempty"`
	Count       int    `json:"count,omitempty"` // of a latch: what is left to count
	RemainingMS int64  `json:"remaining_ms,omitempty"`
	age
	Token      int64    `json:"token,omitempty"`       // of a free lock: the last one, while remembered
	Limit      int      `json:"limit,omitempty"`       // of a semaphore: how many permits there are
	Holders    []holder `json:"holders,omitempty"`     // all; Holder is the first. Of a latch: the parties
	Value      *string  `json:"value,omitempty"`       // of an election, by inspect and watch: its leader's
	ValueBytes []byte   `json:"value_bytes,omitempty"` // base64, of a value that is not UTF-8
	Queue      []waiter `json:"queue,omitempty"`
	Error      string   `json:"error,omitempty"` // why all this is not known
}

// party is a holder of a lock or a waiter, as its session describes itself.
type party struct {
	Owner   string `json:"owner"`
	Session string `json:"session"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Label   string `json:"label,omitempty"`
	Note    string `json:"note,omitempty"` // of the call that holds or wants the lock (rlock.WithNote)
	speaks
}

// speaks has the versions with which a program was built. It is zero if its session does not say them.
type speaks struct {
	Protocol int    `json:"protocol,omitempty"` // version of the protocol
	Library  string `json:"library,omitempty"`  // version of the library: a tag, a commit, or "devel"
}

type waiter struct {
	party
	AgeMS   int64  `json:"age_ms"`
	Side    string `json:"side,omitempty"`    // of a read-write lock: read or write
	Permits int    `json:"permits,omitempty"` // of a semaphore
}

// holder is one of several.
type holder struct {
	party
	Side        string `json:"side,omitempty"`    // of a read-write lock: read or write
	Permits     int    `json:"permits,omitempty"` // of a semaphore
	Party       string `json:"party,omitempty"`   // of a latch: the name of the party
	Token       int64  `json:"token"`             // 0 of a party
	RemainingMS int64  `json:"remaining_ms"`      // of a party: 0 if its lease is over
	Lingers     bool   `json:"lingers,omitempty"` // its session may keep it while no goroutine has it
	age
}

// age is since when a lock is held, where its token is known.
type age struct {
	Since  *time.Time `json:"since,omitempty"` // by the server's clock
	HeldMS int64      `json:"held_ms,omitempty"`
}

// ageOf reads a token, which is the time at which the holder's session got the lock.
func ageOf(token int64, now time.Time) age {
	if token == 0 {
		return age{}
	}
	since := time.UnixMicro(token).UTC()
	return age{&since, max(0, now.Sub(since).Milliseconds())}
}

// heldFor is how long, for people.
func (a age) heldFor() string {
	if a.Since == nil {
		return ""
	}
	return (time.Duration(a.HeldMS) * time.Millisecond).Round(time.Second).String()
}

func (a age) text() string {
	if a.Since == nil {
		return "not known"
	}
	return a.Since.Format(time.RFC3339) + ", for " + a.heldFor()
}

// aged says since when each holder has it. Now is this machine's.
func (s lockState) aged(now time.Time) lockState {
	if s.Held {
		s.age = ageOf(s.Token, now)
	}
	for i := range s.Holders {
		s.Holders[i].age = ageOf(s.Holders[i].Token, now)
	}
	return s
}

// hold adds a holder. The first is shown where there is room for one.
func (s *lockState) hold(h holder) {
	if !s.Held {
		s.Held, s.Holder, s.Token, s.RemainingMS = true, &h.party, h.Token, h.RemainingMS
	}
	s.Count++
	s.Holders = append(s.Holders, h)
}

// heldBy names the first holder, and counts the others.
func (s lockState) heldBy() string {
	switch len(s.Holders) {
	case 0:
		return ""
	case 1:
		return s.Holders[0].String()
	}
	return fmt.Sprintf("%v and %d more", s.Holders[0], len(s.Holders)-1)
}

func (h holder) String() string {
	switch {
	case h.Lingers:
		return share(h.Side, h.Permits) + h.party.String() + " (may be idle: WithLinger)"
	case h.Party == "":
		return share(h.Side, h.Permits) + h.party.String()
	case h.RemainingMS == 0:
		return printable(h.Party) + ": " + h.party.String() + " (dead)"
	}
	return printable(h.Party) + ": " + h.party.String()
}

func (w waiter) String() string { return share(w.Side, w.Permits) + w.party.String() }

// share is what a holder has of a lock, or a waiter wants.
func share(side string, permits int) string {
	switch {
	case side != "":
		return side + ": "
	case permits == 1:
		return "1 permit: "
	case permits > 0:
		return fmt.Sprintf("%d permits: ", permits)
	}
	return ""
}

// gone: by now, the lock is neither held nor waited for, or no run of the latch is under way.
func (s lockState) gone() bool { return !s.Held && !s.counts() && len(s.Queue) == 0 && s.Error == "" }

// status is what it is at, for people.
func (s lockState) status() string {
	switch {
	case s.Held:
		return "held"
	case s.counts():
		return fmt.Sprintf("count %d", s.Count)
	}
	return "free"
}

// counts: it is a latch, and a run is under way.
func (s lockState) counts() bool { return s.Kind == rlock.KindLatch.String() && s.Count > 0 }

// leased: a lease ends after RemainingMS.
func (s lockState) leased() bool { return len(s.Holders) > 0 }

// said is the value of an election's leader, where there is room for some of it.
func (s lockState) said() string {
	const most = 200
	if v := *s.Value; len(v) > most {
		return fmt.Sprintf("%s and %d more bytes", strconv.Quote(v[:most]), len(v)-most)
	}
	return strconv.Quote(*s.Value)
}

// count is the hold count, how many hold a read-write lock, or how many permits of a semaphore are held, and
// of how many.
func (s lockState) count() string {
	if s.Limit > 0 {
		return fmt.Sprintf("%d/%d", s.Count, s.Limit)
	}
	return strconv.Itoa(s.Count)
}

// short is a time as people read it.
func short(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// String identifies it.
func (p party) String() string {
	if p.PID == 0 {
		return printable(p.Owner)
	}
	label := cmp.Or(printable(p.Label), "no label") + p.noted()
	kept := map[bool]string{true: " (has unlocked: HoldAtLeast)"}[strings.HasSuffix(p.Owner, "~")]
	return fmt.Sprintf("process %d on %s (%s)%s", p.PID, printable(p.Host), label, kept)
}

// noted returns the note, to stand behind the label.
func (p party) noted() string {
	if p.Note == "" {
		return ""
	}
	return fmt.Sprintf(", note %q", p.Note)
}

// printable quotes what would play tricks with a terminal or a table.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
