package otellock_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// exported returns the names of the metrics on the page for Prometheus, with the labels of each metric.
func exported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	p := newProcess(t)
	ctx := context.Background()
	for _, e := range []rlock.Event{
		{Type: rlock.EventWaiting}, {Type: rlock.EventAcquired, Depth: 1},
		{Type: rlock.EventNotAcquired, Err: rlock.ErrLocked},
		{Type: rlock.EventReleased}, {Type: rlock.EventLost, Err: rlock.ErrLost},
		{Type: rlock.EventRenewFailed, Err: rlock.ErrClosed},
	} {
		e.LockKind, e.Name, e.At = rlock.KindReentrant, "x", time.Now()
		p.observer.Observe(ctx, e)
	}
	p.logger(nil)
	names := map[string]map[string]bool{}
	for series := range p.scrape() {
		name, labels, _ := strings.Cut(scopeLabels.ReplaceAllString(series, ""), "{")
		if names[name] == nil {
			names[name] = map[string]bool{}
		}
		for _, label := range labelled.FindAllStringSubmatch(labels, -1) {
			names[name][label[1]] = true
		}
	}
	return names
}

var labelled = regexp.MustCompile(`(\w+)="`)

// promQL has the words of PromQL that the dashboard and the alerts use.
var promQL = []string{"sum", "max", "by", "rate", "increase", "histogram_quantile", "label_values", "and"}

var (
	quoted = regexp.MustCompile(`"[^"]*"`)
	ranged = regexp.MustCompile(`\[[^\]]*\]`)
	word   = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_]*`)
)

// checkWords fails the test if a word of expr is neither a metric, nor a label, nor in promQL. It also fails
// the test if expr has no metric. It returns the metrics in expr.
func checkWords(t *testing.T, names map[string]map[string]bool, where, expr string) (metrics []string) {
	t.Helper()
	for _, w := range word.FindAllString(quoted.ReplaceAllString(ranged.ReplaceAllString(expr, ""), ""), -1) {
		switch {
		case names[w] != nil:
			metrics = append(metrics, w)
		case !labelsOf(names)[w] && !slices.Contains(promQL, w):
			t.Errorf("%s: %q is neither a metric, nor a label, nor PromQL: %s", where, w, expr)
		}
	}
	if metrics == nil {
		t.Errorf("%s: no metric in %s", where, expr)
	}
	return metrics
}

func labelsOf(names map[string]map[string]bool) map[string]bool {
	labels := map[string]bool{}
	for _, l := range names {
		maps.Copy(labels, l)
	}
	return labels
}

func TestTheDashboardRefersToMetricsThatExist(t *testing.T) {
	names := exported(t)
	labels := labelsOf(names)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	text, err := os.ReadFile("dashboard.json")
	testlock.Must(t, err)
	testlock.Must(t, json.Unmarshal(text, &dashboard))

	variables := []string{"__rate_interval"} // a variable of Grafana
	used := map[string]bool{}
	check := func(where, expr string) {
		for _, metric := range checkWords(t, names, where, expr) {
			used[metric] = true
		}
	}
	for _, v := range dashboard.Templating.List {
		variables = append(variables, v.Name)
		if v.Type == "query" {
			check(v.Name, v.Query)
		}
	}
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%s: empty", p.Title)
		}
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
			for _, w := range word.FindAllString(target.LegendFormat, -1) {
				if strings.Contains(target.LegendFormat, "{{"+w+"}}") && !labels[w] {
					t.Errorf("%s: the legend has no label %q", p.Title, w)
				}
			}
			for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(variables, v[1]) {
					t.Errorf("%s: no variable %s", p.Title, v[0])
				}
			}
		}
	}
	for name := range names { // the dashboard must show each metric
		if base, _, histogram := strings.Cut(name, "_bucket"); histogram {
			name = base + "_bucket"
		} else if strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") {
			continue
		}
		if !used[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
