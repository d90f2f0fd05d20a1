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

// A lockState is the state of a lock, as the commands show it. --json prints it as JSON.
type lockState struct {
	Name        string `json:"name"`
	NameBytes   []byte `json:"name_bytes,omitempty"` // the name, if it is not UTF-8
	Kind        string `json:"kind"`
	Server      string `json:"server,omitempty"` // server of a RedLock's part, with inspect --also
	Held        bool   `json:"held"`
	Holder      *party `json:"holder,omitempty"`
	Count       int    `json:"count,omitempty"` // hold count, holders, permits in use, or count of a latch
	RemainingMS int64  `json:"remaining_ms,omitempty"`
	age
	Token      int64    `json:"token,omitempty"`       // for a free lock, the last token; 0 if not known
	Limit      int      `json:"limit,omitempty"`       // number of permits of a semaphore
	Holders    []holder `json:"holders,omitempty"`     // all holders, Holder first; for a latch, the parties
	Value      *string  `json:"value,omitempty"`       // value of an election's leader, by inspect and watch
	ValueBytes []byte   `json:"value_bytes,omitempty"` // the value, if it is not UTF-8
	Queue      []waiter `json:"queue,omitempty"`
	Error      string   `json:"error,omitempty"` // error with which the state could not be read
}

// A party describes the process of a holder or a waiter, with the data that its session has stored.
type party struct {
	Owner   string `json:"owner"`
	Session string `json:"session"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Label   string `json:"label,omitempty"`
	Note    string `json:"note,omitempty"` // note of the call (rlock.WithNote)
	speaks
}

// speaks has the versions with which a program was built. It is zero if the session of the program has not
// stored them.
type speaks struct {
	Protocol int    `json:"protocol,omitempty"` // version of the protocol
	Library  string `json:"library,omitempty"`  // version of the library: a tag, a commit, or "devel"
}

type waiter struct {
	party
	AgeMS   int64  `json:"age_ms"`
	Side    string `json:"side,omitempty"`    // "read" or "write", for a read-write lock
	Permits int    `json:"permits,omitempty"` // number of permits that the waiter wants, for a semaphore
}

// A holder is a holder of a lock or of permits, or a party of a latch.
type holder struct {
	party
	Side        string `json:"side,omitempty"`    // "read" or "write", for a read-write lock
	Permits     int    `json:"permits,omitempty"` // number of permits that the holder has, for a semaphore
	Party       string `json:"party,omitempty"`   // name of the party, for a latch
	Token       int64  `json:"token"`             // 0 for a party of a latch
	RemainingMS int64  `json:"remaining_ms"`      // rest of the lease; 0 if the lease of a party has ended
	Lingers     bool   `json:"lingers,omitempty"` // the session may keep the lock while no goroutine has it
	age
}

// An age has the time at which a hold began, and the duration of the hold. It is zero if the token is not
// known.
type age struct {
	Since  *time.Time `json:"since,omitempty"` // time of the grant by the server's clock
	HeldMS int64      `json:"held_ms,omitempty"`
}

// ageOf returns the age of a hold with this token. A token is about the time at which the session got the
// lock, in µs since 1970.
func ageOf(token int64, now time.Time) age {
	if token == 0 {
		return age{}
	}
	since := time.UnixMicro(token).UTC()
	return age{&since, max(0, now.Sub(since).Milliseconds())}
}

// heldFor returns the duration of the hold for people, or "" if it is not known.
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

// aged returns s with the age of each hold. now is the time of this machine.
func (s lockState) aged(now time.Time) lockState {
	if s.Held {
		s.age = ageOf(s.Token, now)
	}
	for i := range s.Holders {
		s.Holders[i].age = ageOf(s.Holders[i].Token, now)
	}
	return s
}

// hold adds a holder. For the first holder, it also sets Held, Holder, Token and RemainingMS.
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

// share returns the first words of the text about a holder or a waiter. They name the side of a read-write
// lock, or the number of permits of a semaphore. For other locks, share returns "".
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

// gone reports whether there is nothing to show. This is so for a lock without a holder and without waiters,
// and for a latch with the count 0, unless the state has an error.
func (s lockState) gone() bool { return !s.Held && !s.counts() && len(s.Queue) == 0 && s.Error == "" }

// status returns one or two words about the lock or latch, for people.
func (s lockState) status() string {
	switch {
	case s.Held:
		return "held"
	case s.counts():
		return fmt.Sprintf("count %d", s.Count)
	}
	return "free"
}

// counts reports whether this is a latch with a count above 0.
func (s lockState) counts() bool { return s.Kind == rlock.KindLatch.String() && s.Count > 0 }

// leased reports whether there is a lease, which ends after RemainingMS.
func (s lockState) leased() bool { return len(s.Holders) > 0 }

// said returns the quoted value of an election's leader. It cuts a long value.
func (s lockState) said() string {
	const most = 200
	if v := *s.Value; len(v) > most {
		return fmt.Sprintf("%s and %d more bytes", strconv.Quote(v[:most]), len(v)-most)
	}
	return strconv.Quote(*s.Value)
}

// count returns the count as a text. For a semaphore, the text also has the limit.
func (s lockState) count() string {
	if s.Limit > 0 {
		return fmt.Sprintf("%d/%d", s.Count, s.Limit)
	}
	return strconv.Itoa(s.Count)
}

// short returns a time, given in ms, for people.
func short(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// String names the process and its host. If they are not known, it returns the owner field.
func (p party) String() string {
	if p.PID == 0 {
		return printable(p.Owner)
	}
	label := cmp.Or(printable(p.Label), "no label") + p.noted()
	kept := map[bool]string{true: " (has unlocked: HoldAtLeast)"}[strings.HasSuffix(p.Owner, "~")]
	return fmt.Sprintf("process %d on %s (%s)%s", p.PID, printable(p.Host), label, kept)
}

// noted returns the note as an addition to the label, or "" if there is none.
func (p party) noted() string {
	if p.Note == "" {
		return ""
	}
	return fmt.Sprintf(", note %q", p.Note)
}

// printable returns a text for a terminal. It quotes the text if a character could change the terminal or
// break a table.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
