package otellock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

var rules = regexp.MustCompile(`(?ms)^ +- alert: (\w+)\n +expr: \|\n(.*?)^ +(?:for|labels):`)

// alerts returns the expressions in alerts.yaml by the names of their alerts.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	return alertsOf(t, "alerts.yaml")
}

// alertsOf returns the expressions in a file of alerts by the names of their alerts.
func alertsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	testlock.Must(t, err)
	all := map[string]string{}
	for _, m := range rules.FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[2]
	}
	if n := strings.Count(string(text), "alert:"); n == 0 || n != len(all) {
		t.Fatalf("%d alerts of %d are understood", len(all), n)
	}
	return all
}

func TestTheAlertsReferToMetricsThatExist(t *testing.T) {
	t.Parallel()
	names := exported(t)
	for alert, expr := range alerts(t) {
		checkWords(t, names, alert, expr)
	}
	text, err := os.ReadFile("alerts.yaml")
	testlock.Must(t, err)
	for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(string(text), -1) {
		if m[1] != "lockline_lock_kind" && m[1] != "lockline_lock_pattern" && m[1] != "lockline_log_message" {
			t.Errorf("an alert has no label %s", m[1])
		}
	}
}

var runbook = regexp.MustCompile(`(?m)^ +runbook_url: ` +
	`https://github\.com/lockline/lockline/blob/main/(docs/(?:operations|failures)\.md)#([a-z-]+)$`)

var descriptions = regexp.MustCompile(`(?m)^ +description: >-\n(?: {12}.*\n)+`)

func TestEachAlertNamesASectionOfTheRunbookAndACommand(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alerts.yaml")
	testlock.Must(t, err)
	ofRedis, err := os.ReadFile("alerts-redis.yaml")
	testlock.Must(t, err)
	text = append(text, ofRedis...)
	runbooks := runbook.FindAllStringSubmatch(string(text), -1)
	if want := strings.Count(string(text), "alert:"); len(runbooks) != want {
		t.Errorf("%d alerts of %d have a runbook_url", len(runbooks), want)
	}
	for _, description := range descriptions.FindAllString(string(text), -1) {
		if !strings.Contains(description, `"lockline `) && !strings.Contains(description, `"redis-cli `) {
			t.Errorf("no command to begin with: %s", description)
		}
	}
	sections := map[string]bool{}
	headings := regexp.MustCompile(`(?m)^#+ ([A-Za-z ]+)$`)
	for _, name := range []string{"docs/operations.md", "docs/failures.md"} {
		page, err := os.ReadFile("../" + name)
		testlock.Must(t, err)
		for _, heading := range headings.FindAllStringSubmatch(string(page), -1) {
			sections[name+"#"+strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
		}
	}
	for _, r := range runbooks {
		if section := r[1] + "#" + r[2]; !sections[section] {
			t.Errorf("there is no section %s", section)
		}
	}
}
