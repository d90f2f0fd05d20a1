package main

import "strings"

// operationsPage is the page to which findings lead.
const operationsPage = "docs/operations.md"

// symptoms has the heading in operationsPage for each check.
var symptoms = map[string]string{
	"reach": "redis-does-not-answer", "version": "upgrades", "cluster": "what-a-failover-costs",
	"eviction": "keys-are-evicted", "memory": "redis-refuses", "persistence": "redis-was-restarted",
	"replication": "what-a-failover-costs", "clock": "a-clock-was-set", "pace": "a-clock-was-set",
	"clocks": "a-clock-was-set", "pubsub": "subscription-lost", "clients": "redis-does-not-answer",
	"client memory": "subscription-lost", "scripts": "redis-refuses", "names": "two-are-inside-at-once",
	"waits": "sessions-wait-for-each-other", "locks": "redis-refuses", "quorum": "what-a-failover-costs",
	"agreement": "what-a-failover-costs", "down-after": "what-a-failover-costs",
	"independent": "a-redlock-server-restarts", "number": "a-redlock-server-restarts",
	"durability": "a-redlock-server-restarts",
}

// symptom returns the page and the heading for a finding, or "" if nothing is wrong.
func (f finding) symptom() string {
	heading := symptoms[f.Check]
	switch {
	case f.Status == fine:
		return ""
	case strings.HasPrefix(f.Do, rightsDo):
		heading = "noperm"
	case f.Do == adminDo:
		heading = "acl-rules"
	}
	return operationsPage + "#" + heading
}
