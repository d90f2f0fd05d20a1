package otellock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

var rules = regexp.MustCompile(`(?ms)^ +- alert: (\w+)\n +expr: \|\n(.*?)^ +(?:for|labels):`)

// alerts are the expressions in alerts.yaml.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("alerts.yaml")
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
		if m[1] != "lockline_lock_kind" && m[1] != "lockline_lock_pattern" {
			t.Errorf("an alert has no label %s", m[1])
		}
	}
}
