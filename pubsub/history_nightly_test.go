//go:build nightly

package pubsub_test

import "testing"

func TestNoWakeUpIsLostWithHundredsOfSeeds(t *testing.T) {
	histories(t, 10, 300, singleHistory)
	histories(t, 10, 300, shardedHistory)
}
