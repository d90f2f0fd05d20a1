package pubsub_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/pubsub"
)

func TestMain(m *testing.M) { testredis.Run(m) }

// await calls Take of s until wanted returns true.
func await(
	t *testing.T, s *pubsub.Subscription, what string, wanted func(messages []string, resubscribed bool) bool,
) {
	t.Helper()
	for timeout := time.After(30 * time.Second); ; {
		select {
		case <-s.C():
			if wanted(s.Take()) {
				return
			}
		case <-timeout:
			t.Fatalf("not %s in time", what)
		}
	}
}

func awaitResubscribed(t *testing.T, s *pubsub.Subscription) {
	t.Helper()
	await(t, s, "resubscribed", func(_ []string, resubscribed bool) bool { return resubscribed })
}

func awaitMessage(t *testing.T, s *pubsub.Subscription, message string) {
	t.Helper()
	await(t, s, "told "+message, func(messages []string, _ bool) bool {
		return slices.Contains(messages, message)
	})
}
