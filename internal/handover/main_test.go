package handover

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what a waiter was answered. It does not wait: whatever answers has done so when it returns.
func answer(t *testing.T, w *Waiter[int]) Handoff[int] {
	t.Helper()
	select {
	case told := <-w.Ready:
		if told != Answered {
			t.Error("a waiter was told something else first")
		}
	default:
		t.Error("a waiter has no answer")
	}
	return w.Handoff()
}
