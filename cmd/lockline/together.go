package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// examineAll examines the server of --redis. If --also names further servers, it examines each of them, and
// then all together as the servers of a RedLock.
func (o *operator) examineAll(ctx context.Context, also []string, now func() time.Time) ([]finding, error) {
	if len(also) == 0 {
		return o.examine(ctx, now), nil
	}
	var findings []finding
	var seen [][]facts
	for i, url := range append([]string{o.at.URL}, also...) {
		each := o
		if i > 0 {
			t := o.at
			t.URL, t.from, t.file = url, "--also", ""
			each = &operator{prefix: o.prefix, kinds: o.kinds, at: t, lease: o.lease}
			switch err := each.open(ctx, t); {
			case errors.As(err, &each.down):
			case err != nil:
				return nil, err
			default:
				defer each.close()
			}
		}
		for _, f := range each.examine(ctx, now) {
			if f.Server == "" {
				f.Server = each.at.host()
			}
			findings = append(findings, f)
		}
		seen = append(seen, each.seen)
	}
	for _, f := range judgeTogether(seen) {
		f.See = f.symptom()
		findings = append(findings, f)
	}
	return findings, nil
}

// maxApart is the largest allowed difference between the clocks of a RedLock's servers.
const maxApart = 10 * time.Minute

// judgeTogether returns findings about the servers of a RedLock. seen has the facts of each URL.
func judgeTogether(seen [][]facts) (findings []finding) {
	add := func(check string, s status, found, do string) {
		says := judgment{s, found, do}
		findings = append(findings, finding{Server: "all servers", Check: check, judgment: says})
	}
	var all []facts
	answered := 0
	for _, fs := range seen {
		all = append(all, fs...)
		if slices.ContainsFunc(fs, func(f facts) bool { return f.err == nil }) {
			answered++
		}
	}
	needed := len(seen)/2 + 1
	switch votes := fmt.Sprintf("%d of %d servers answer, %d are needed", answered, len(seen), needed); {
	case answered < needed:
		add("majority", failure, votes, "bring servers back: until then, no RedLock can be taken, and "+
			"holders lose their locks when the leases end")
	case answered < len(seen):
		add("majority", warning, votes, "bring the other servers back, and restart no server meanwhile: "+
			"if too few are left, holders lose their locks")
	default:
		add("majority", fine, votes, "")
	}
	byID := map[string]string{} // address of the server with this run id
	var lagging, unsynced, unread []string
	for _, f := range all {
		if id := f.info["run_id"]; id != "" {
			if other, twice := byID[id]; twice {
				add("independent", failure, other+" and "+f.server+" are the same server",
					"name each server once: it has one vote, so a RedLock over it survives nothing")
			}
			byID[id] = f.server
		}
		switch fsync, known := f.config["appendfsync"]; {
		case f.err != nil:
		case f.info["role"] == "slave":
			lagging = append(lagging, f.server)
		case f.info != nil && f.info["aof_enabled"] != "1", known && fsync != "always":
			unsynced = append(unsynced, f.server)
		case f.info == nil || !known:
			unread = append(unread, f.server)
		}
	}
	if len(lagging) > 0 {
		add("independent", failure, strings.Join(lagging, ", ")+": a replica",
			"name masters that do not replicate to each other: a replica cannot vote")
	}
	if !slices.ContainsFunc(findings, func(f finding) bool { return f.Check == "independent" }) {
		add("independent", fine, fmt.Sprintf("%d servers, no two of them the same", answered), "")
	}
	if n := len(seen); n%2 == 0 {
		add("number", warning, fmt.Sprintf("%d servers", n), "use three or five: "+
			"with an even number, no more servers may fail than with one server less")
	}
	if len(unsynced) > 0 {
		found := "appendonly is off, or appendfsync is not always: " + strings.Join(unsynced, ", ")
		add("durability", warning, found, "set appendonly yes and appendfsync always, "+
			"or keep a server that crashed off for the longest lease: "+
			"a server that forgets its vote may give a second holder a majority")
	}
	if len(unread) > 0 {
		says := unasked("", "appendfsync, or may not ask INFO: "+strings.Join(unread, ", "))
		add("durability", says.Status, says.Found, says.Do)
	}
	byClock := func(a, b facts) int { return cmp.Compare(a.ahead, b.ahead) }
	// A server that has not answered TIME has no clock that could be compared.
	read := slices.DeleteFunc(all, func(f facts) bool { return f.err != nil })
	if len(read) > 0 {
		first, last := slices.MinFunc(read, byClock), slices.MaxFunc(read, byClock)
		if apart := last.ahead - first.ahead; apart > maxApart {
			add("clocks", failure, fmt.Sprintf("%s is ahead of %s by %v", last.server, first.server,
				apart.Round(time.Second)), "set the clocks by NTP: they must agree within 10 minutes")
		}
	}
	return findings
}
