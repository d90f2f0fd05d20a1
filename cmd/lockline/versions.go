package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockline/lockline/internal/protocol"
)

// versionsDo is the remedy for sessions of different versions of the protocol.
const versionsDo = "look at the protocols in CHANGELOG.md: if these versions do not exclude each other, " +
	"stop the older programs, wait until their leases have ended, and start the newer ones"

// String returns the versions of the library and of the protocol, for people.
func (v speaks) String() string {
	if v.Protocol == 0 {
		return "a version that is not known"
	}
	library := cmp.Or(printable(v.Library), "of a version that is not known")
	return fmt.Sprintf("lockline %s, protocol %d", library, v.Protocol)
}

// differs returns the versions of p as an addition to a line about a session. It returns "" if p has the
// protocol of this tool. It also returns "" for a JVM and for a party of a latch, because their processes are
// not known.
func (p party) differs() string {
	if p.PID == 0 || p.Protocol == protocol.Version {
		return ""
	}
	return ", " + p.speaks.String()
}

// judgeVersions judges the versions of the protocol of all sessions that hold a lock or wait for one.
func judgeVersions(states []lockState) judgment {
	sessions := map[speaks]map[string]bool{}
	var unread []string // names with keys that this version did not write
	var others []party  // parties of sessions with other protocols
	saw := func(p party) {
		if p.PID == 0 {
			return
		}
		if sessions[p.speaks] == nil {
			sessions[p.speaks] = map[string]bool{}
		}
		if p.Protocol != protocol.Version && !sessions[p.speaks][p.Session] {
			others = append(others, p)
		}
		sessions[p.speaks][p.Session] = true
	}
	for _, s := range states {
		if strings.Contains(s.Error, "did not write") || strings.Contains(s.Error, "older version") {
			unread = append(unread, fmt.Sprintf("%q (%s)", s.Name, printable(s.Kind)))
		}
		for _, h := range s.Holders {
			saw(h.party)
		}
		for _, w := range s.Queue {
			saw(w.party)
		}
	}
	order := func(a, b speaks) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Library, b.Library))
	}
	var found []string
	protocols := map[int]bool{}
	for _, v := range slices.SortedFunc(maps.Keys(sessions), order) {
		found = append(found, fmt.Sprintf("%d with %v", len(sessions[v]), v))
		protocols[v.Protocol] = true
	}
	text := "no session holds a lock or waits"
	if len(found) > 0 {
		text = "sessions: " + strings.Join(found, "; ")
	}
	if len(protocols) > 1 {
		text += fmt.Sprintf("; without protocol %d: %s", protocol.Version, someOf(others))
	}
	switch {
	case len(unread) > 0:
		foreign := fmt.Sprintf("names with keys that protocol %d did not write: %s; ",
			protocol.Version, someOf(unread))
		return judgment{warning, foreign + text, versionsDo}
	case len(protocols) > 1:
		return judgment{warning, text, versionsDo}
	case len(protocols) == 1 && !protocols[protocol.Version]:
		return judgment{warning, fmt.Sprintf("%s, and this tool has protocol %d", text, protocol.Version),
			"use the tool of the programs' version"}
	}
	return judgment{fine, text, ""}
}

// mostNamed is the number of names that someOf shows.
const mostNamed = 5

// someOf returns a text for people that names the first few elements of a list.
func someOf[T any](all []T) string {
	var texts []string
	for _, one := range all[:min(len(all), mostNamed)] {
		texts = append(texts, fmt.Sprint(one))
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
