package otellock_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	otellock "github.com/lockline/lockline/otel"

	"github.com/lockline/lockline/internal/testing/testlock"
)

// logged returns the counters of warnings. Each message has its own counter.
func (p *process) logged() map[string]string {
	counters := p.counters()
	maps.DeleteFunc(counters, func(series, _ string) bool {
		return !strings.HasPrefix(series, "lockline_log_warnings_total{")
	})
	return counters
}

func TestWarningsAreCountedByTheirMessage(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	var text bytes.Buffer
	log := p.logger(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelError}))
	series := func(message string) string {
		return `lockline_log_warnings_total{lockline_log_message="` + message + `"}`
	}
	before := p.logged()
	if len(before) == 0 {
		t.Error("no counter is at 0 before the first message")
	}
	log.Warn("lockline: subscription refused, trying again; until then")
	log.With("a", 1).WithGroup("g").Warn("lockline: lock lost", "lock", "x")
	log.Error("lockline: lock lost")
	log.Info("lockline: subscription restored")
	log.Warn("another library: lock lost")
	want := maps.Clone(before)
	want[series("subscription refused")] = "1"
	want[series("lock lost")] = "2"
	if got := p.logged(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if passed := text.String(); strings.Count(passed, "\n") != 1 || !strings.Contains(passed, "level=ERROR") {
		t.Errorf("passed on: %s", passed)
	}
	for _, none := range []*otellock.LogHandler{nil, {}} {
		slog.New(none).With("a", 1).WithGroup("g").Warn("lockline: lock lost")
	}
	handler, err := otellock.NewLogHandler(nil)
	testlock.Must(t, err)
	if !handler.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("by default, warnings are not handled")
	}
}

func TestTheMessagesOfAlertsAreLogged(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.logger(nil)
	var sources strings.Builder
	for _, folder := range []string{"../multilock", "../internal/wire", "../pubsub"} {
		testlock.Must(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				text, readErr := os.ReadFile(path)
				sources.Write(text)
				err = readErr
			}
			return err
		}))
	}
	for series := range p.logged() {
		_, message, _ := strings.Cut(series, `message="`)
		message, _, _ = strings.Cut(message, `"`)
		all := sources.String()
		if !strings.Contains(all, `"`+message) && !strings.Contains(all, " "+message) {
			t.Errorf("nothing logs %q", message)
		}
	}
}
