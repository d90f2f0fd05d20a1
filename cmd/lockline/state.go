package main

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/lockline/lockline/rlock"
)

// lockState is a lock as the commands show it, and their JSON.
type lockState struct {
	Name        string   `json:"name"`
	NameBytes   []byte   `json:"name_bytes,omitempty"` // base64, of a name that is not UTF-8
	Kind        string   `json:"kind"`
	Held        bool     `json:"held"`
	Holder      *party   `json:"holder,omitempty"`
	Count       int      `json:"count,omitempty"`
	RemainingMS int64    `json:"remaining_ms,omitempty"`
	Token       int64    `json:"token,omitempty"` // of a free lock: the last one, while remembered
	Queue       []waiter `json:"queue,omitempty"`
	Error       string   `json:"error,omitempty"` // why all this is not known
}

// party is a holder of a lock or a waiter, as its session describes itself.
type party struct {
	Owner   string `json:"owner"`
	Session string `json:"session"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Label   string `json:"label,omitempty"`
}

type waiter struct {
	party
	AgeMS int64 `json:"age_ms"`
}

func stateOf(k lockKind, s rlock.State) lockState {
	st := lockState{Name: s.Name, Kind: k.name, Held: s.Held, Token: s.Token}
	if !utf8.ValidString(s.Name) {
		st.NameBytes = []byte(s.Name)
	}
	if s.Held {
		st.Holder = &party{s.Owner, s.Session, s.Host, s.PID, s.Label}
		st.Count, st.RemainingMS = s.Count, s.Remaining.Milliseconds()
	}
	for _, w := range s.Queue {
		st.Queue = append(st.Queue, waiter{party{w.Owner, w.Session, w.Host, w.PID, w.Label}, w.Age.Milliseconds()})
	}
	return st
}

// gone: by now, the lock is neither held nor waited for.
func (s lockState) gone() bool { return !s.Held && len(s.Queue) == 0 && s.Error == "" }

func (s lockState) remaining() string { return short(s.RemainingMS) }

// short is a time as people read it.
func short(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// String identifies it.
func (p party) String() string {
	if p.PID == 0 {
		return printable(p.Owner)
	}
	return fmt.Sprintf("process %d on %s (%s)", p.PID, printable(p.Host), cmp.Or(printable(p.Label), "no label"))
}

// printable quotes what would play tricks with a terminal or a table.
func printable(s string) string {
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
