package protocol

import (
	"strings"
	"testing"
	"time"
)

func TestALateRequestIsNeverWelcomeLongerThanItsLease(t *testing.T) {
	for _, lease := range []time.Duration{MinLease, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, time.Hour} {
		if p := Patience(lease); p < min(lease, time.Second) || p > lease || p > 10*time.Second {
			t.Errorf("lease %v: patience %v", lease, p)
		}
	}
}

func TestAHoldEndsBeforeItsLeaseWhicheverClockIsFast(t *testing.T) {
	for _, lease := range []time.Duration{MinLease, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, time.Hour} {
		if v := Valid(lease); v <= 0 || lease-v < lease/100+2*time.Millisecond || lease-v > lease/4 {
			t.Errorf("lease %v: valid for %v", lease, v)
		}
	}
}

func TestALeaseIsAtLeastMinLease(t *testing.T) {
	if err := CheckLease("WithLease", MinLease); err != nil {
		t.Error(err)
	}
	for _, d := range []time.Duration{MinLease - 1, 0, -time.Hour} {
		if err := CheckLease("WithLease", d); err == nil || !strings.HasPrefix(err.Error(), "lockline: WithLease: ") || !strings.Contains(err.Error(), d.String()) {
			t.Errorf("%v: %v", d, err)
		}
	}
}
