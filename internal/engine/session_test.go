package engine

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALateRequestIsNeverWelcomeLongerThanItsLease(t *testing.T) {
	for _, lease := range []time.Duration{MinLease, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, time.Hour} {
		if p := patience(lease); p <= 0 || p > lease || p > 10*time.Second {
			t.Errorf("lease %v: patience %v", lease, p)
		}
		if v := valid(lease); v <= 0 || v >= lease {
			t.Errorf("lease %v: valid for %v", lease, v)
		}
	}
}
