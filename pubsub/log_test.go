package pubsub_test

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/pubsub"
)

// named is a Conn that names its server.
type named struct{ *conn }

func (named) Server() string { return "redis-7:6379" }

// Each line names the library, the server and the channels, and says what the trouble means for waiters.
func TestLogLinesNameTheServerAndTheChannels(t *testing.T) {
	const until = "until then, waiters notice a freed lock only at their next heartbeat"
	for name, c := range map[string]struct {
		own  bool     // the Conn names its server
		want []string // regular expressions
	}{
		"lost": {false, []string{
			`^level=WARN msg="lockline: subscription lost, connecting again; ` + until + `" ` +
				`channels="a, b, c and 2 more" error="connection cut" server=redis-1:6379$`,
			`^level=INFO msg="lockline: subscription restored" after=\S+ server=redis-1:6379$`,
		}},
		"by a connection that knows more": {true, []string{
			`^level=WARN msg="lockline: subscription lost, .* server=redis-7:6379$`,
			`^level=INFO msg="lockline: subscription restored" after=\S+ server=redis-7:6379$`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := &server{t: t}
				h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn {
					if c.own {
						return named{s.dial(ctx).(*conn)}
					}
					return s.dial(ctx)
				}, pubsub.Options{Logger: lines(&log), Server: "redis-1:6379"})
				defer h.Close()
				for _, name := range strings.Fields("e d c b a") {
					h.Subscribe(name)
				}
				synctest.Wait()
				s.set(func() { s.refuse = errCut })
				s.cutAll()
				time.Sleep(time.Minute)
				s.set(func() { s.refuse = nil })
				time.Sleep(time.Minute)
				synctest.Wait() // until all lines are written
				matches(t, &log, c.want...)
			})
		})
	}
}

func TestALogLineOfARefusalSaysWhatToDo(t *testing.T) {
	var log bytes.Buffer
	bubble(t, pubsub.Options{Logger: lines(&log)}, func(t *testing.T, s *server, h *pubsub.Hub) {
		s.set(func() { s.refuse = refusal("NOPERM no") })
		h.Subscribe("a")
		time.Sleep(time.Minute)
	})
	matches(t, &log, `^level=WARN msg="lockline: subscription refused, trying again; until then, .* `+
		`heartbeat. If the error is NOPERM, see the ACL rules in docs/operations.md" `+
		`channels=a error="NOPERM no"$`)
}

func TestALogLineOfARefusedShardedChannelNamesIt(t *testing.T) {
	var log bytes.Buffer
	sharded(t, 1, pubsub.Options{Logger: lines(&log)}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		c.refused["b"] = "NOPERM no"
		h.Subscribe("a")
		synctest.Wait()
		h.Subscribe("b")
		time.Sleep(time.Second)
	})
	matches(t, &log, `^level=WARN msg="lockline: subscription refused, .* channel=b error="NOPERM no"$`)
}

func TestALogLineOfAMisledConnectionNamesTheChannel(t *testing.T) {
	var log bytes.Buffer
	o := pubsub.Options{Logger: lines(&log), Server: "redis-1:6379"}
	bubble(t, o, func(t *testing.T, s *server, h *pubsub.Hub) {
		a := h.Subscribe("a")
		heard(t, a)
		time.Sleep(time.Second)
		a.Unheard(time.Now())
		time.Sleep(time.Second)
	})
	matches(t, &log, `^level=WARN msg="lockline: subscription gets a new connection, .* set ConnMaxLifetime `+
		`of the client" channels=a error=".*" server=redis-1:6379$`)
}

// lines returns a logger that writes lines without the time.
func lines(to *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// matches fails the test unless each line of the log matches the pattern in its place.
func matches(t *testing.T, log *bytes.Buffer, patterns ...string) {
	t.Helper()
	got := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i, line := range got {
		if i >= len(patterns) || !regexp.MustCompile(patterns[i]).MatchString(line) {
			t.Errorf("line %d is %s", i, line)
		}
	}
	if len(got) != len(patterns) {
		t.Errorf("%d lines, want %d", len(got), len(patterns))
	}
}

func TestAHubKnowsOfARefusalUntilAChannelIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t}
		h := pubsub.NewHub(s.dial, pubsub.Options{})
		defer h.Close()
		s.set(func() { s.refuse = refusal("NOPERM no") })
		h.Subscribe("a")
		time.Sleep(time.Minute)
		if h.Refusal() != refusal("NOPERM no") {
			t.Errorf("%v", h.Refusal())
		}
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Minute)
		if h.Refusal() != nil {
			t.Errorf("after a confirmation: %v", h.Refusal())
		}
	})
}
