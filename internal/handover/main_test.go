package handover

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what a waiter was told. It does not wait: whatever answers has done so when it returns.
func answer(t *testing.T, w *Waiter[int]) (h Handoff[int]) {
	t.Helper()
	select {
	case h = <-w.Ready:
	default:
		t.Error("a waiter has no answer")
	}
	return h
}
