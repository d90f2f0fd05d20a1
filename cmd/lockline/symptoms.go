package main

import "strings"

// The pages of the documentation that findings name.
const (
	operationsPage = "docs/operations.md"
	failuresPage   = "docs/failures.md"
)

// symptoms has the page and the heading for each check.
var symptoms = map[string]string{
	"reach":         operationsPage + "#redis-does-not-answer",
	"version":       operationsPage + "#upgrades",
	"versions":      operationsPage + "#upgrades",
	"cluster":       failuresPage + "#redis-fails-over",
	"eviction":      failuresPage + "#keys-are-evicted",
	"emptied":       failuresPage + "#redis-restarts-empty",
	"memory":        operationsPage + "#redis-refuses",
	"persistence":   failuresPage + "#redis-restarts-empty",
	"replication":   failuresPage + "#redis-fails-over",
	"clock":         failuresPage + "#a-clock-is-set",
	"pace":          failuresPage + "#a-clock-is-set",
	"clocks":        failuresPage + "#a-clock-is-set",
	"pubsub":        operationsPage + "#subscription-lost",
	"clients":       operationsPage + "#redis-does-not-answer",
	"client memory": operationsPage + "#subscription-lost",
	"scripts":       operationsPage + "#redis-refuses",
	"names":         operationsPage + "#two-are-inside-at-once",
	"waits":         operationsPage + "#sessions-wait-for-each-other",
	"locks":         operationsPage + "#redis-refuses",
	"quorum":        failuresPage + "#redis-fails-over",
	"agreement":     failuresPage + "#redis-fails-over",
	"down-after":    failuresPage + "#redis-fails-over",
	"majority":      operationsPage + "#redis-does-not-answer",
	"independent":   operationsPage + "#a-redlock-server-restarts",
	"number":        operationsPage + "#a-redlock-server-restarts",
	"durability":    operationsPage + "#a-redlock-server-restarts",
}

// symptom returns the page and the heading for a finding. It returns "" if nothing is wrong.
func (f finding) symptom() string {
	see := symptoms[f.Check]
	switch {
	case f.Status == fine:
		return ""
	case strings.HasPrefix(f.Do, rightsDo):
		see = operationsPage + "#noperm"
	case f.Do == passwordDo, f.Do == refusedDo:
		see = operationsPage + "#redis-refuses"
	case f.Do == adminDo:
		see = operationsPage + "#acl-rules"
	}
	return see
}
