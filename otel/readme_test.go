package otellock_test

import (
	"os"
	"strings"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// This test compares the names of the alerts, but not their thresholds.
func TestThePageOfOperatorsListsEveryAlert(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	testlock.Must(t, err)
	for _, file := range []string{"alerts.yaml", "alerts-redis.yaml"} {
		for alert := range alertsOf(t, file) {
			if !strings.Contains(string(page), "\n|`"+alert+"`|") {
				t.Errorf("docs/operations.md has no row for %s of %s", alert, file)
			}
		}
	}
}

func TestTheReadmeListsEveryMetricLabelAndAlert(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	testlock.Must(t, err)
	lists := func(name string) {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
	for series, labels := range exported(t) {
		name := series
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, part)
		}
		lists(name)
		for label := range labels {
			if label != "le" { // a label of each histogram
				lists(label)
			}
		}
	}
	for alert := range alerts(t) {
		lists(alert)
	}
}
