package protocol

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestALateRequestIsNeverWelcomeLongerThanItsLease(t *testing.T) {
	for _, lease := range []time.Duration{
		MinLease, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, time.Hour,
	} {
		if p := Patience(lease); p < min(lease, time.Second) || p > lease || p > 10*time.Second {
			t.Errorf("lease %v: patience %v", lease, p)
		}
	}
}

func TestAHoldEndsBeforeItsLeaseWhicheverClockIsFast(t *testing.T) {
	for _, lease := range []time.Duration{
		MinLease, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, time.Hour,
	} {
		if v := Valid(lease); v <= 0 || lease-v < lease/100+2*time.Millisecond || lease-v > lease/4 {
			t.Errorf("lease %v: valid for %v", lease, v)
		}
	}
}

func TestALeaseHasALeastAndAGreatestValue(t *testing.T) {
	for d, want := range map[time.Duration]string{
		MinLease: "", MaxLease: "",
		MinLease - 1: "9.999999ms is shorter than 10ms", 0: "0s is shorter than 10ms",
		-1: "-1ns is shorter than 10ms", NoLease: "0s is shorter", -time.Hour: "-1h0m0s is shorter",

		MaxLease + 1:  "87600h0m0.000000001s is longer than ten years (87600h0m0s)",
		math.MaxInt64: "longer than ten years",
	} {
		err := CheckLease("WithLease", d)
		const begin = "lockline: WithLease: "
		if (err == nil) != (want == "") || err != nil &&
			!(strings.HasPrefix(err.Error(), begin) && strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v", d, err)
		}
	}
}

func TestADurationWithoutAUnitIsRefusedWithAHintAtTheUnit(t *testing.T) {
	const most = time.Minute
	for d, want := range map[time.Duration]string{
		MinTime: "", most: "",
		30:             "30ns is shorter than 1ms: is the unit missing, as in 30*time.Second?",
		999:            "999ns is shorter than 1ms: is the unit missing, as in 999*time.Second?",
		5000:           "5µs is shorter than 1ms: is the unit missing, as in 5000*time.Millisecond?",
		MinTime - 1:    "999.999µs is shorter than 1ms: is the unit missing, as in 999999*time.Millisecond?",
		0:              "0s is shorter than 1ms",
		-time.Second:   "-1s is shorter than 1ms",
		most + 1:       "1m0.000000001s is longer than 1m0s",
		math.MaxInt64:  "2562047h47m16.854775807s is longer than 1m0s",
		math.MinInt64:  "-2562047h47m16.854775808s is shorter than 1ms",
		MaxLease * 2:   "175200h0m0s is longer than 1m0s",
		most - MinTime: "",
	} {
		err := CheckDuration("HoldAtLeast", d, MinTime, most)
		if want != "" {
			want = "lockline: HoldAtLeast: " + want
		}
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%v: %v", d, err)
		}
	}
	if err := CheckLease("WithLease", 5); err == nil || err.Error() !=
		"lockline: WithLease: 5ns is shorter than 10ms: is the unit missing, as in 5*time.Second?" {
		t.Errorf("a lease without a unit: %v", err)
	}
}

func TestAGrantIsCountedFromBeforeItWasMade(t *testing.T) {
	base := time.Now().Add(-time.Hour)
	if got := GrantTime(5, 0, base); got != base {
		t.Errorf("with no answer yet: %v", got.Sub(base))
	}
	for at, want := range map[int64]time.Duration{
		1_000_000:         0,
		2_000_000:         990 * time.Millisecond,   // the clocks' rates may differ by the margin
		0:                 -1010 * time.Millisecond, // a clock that was set back
		8_000_000_000_000: time.Hour,                // a clock that was set forward
	} {
		if got := GrantTime(at, 1_000_000, base).Sub(base); (got-want).Abs() > time.Minute/10 ||
			want != time.Hour && got != want {
			t.Errorf("at %d: %v, want %v", at, got, want)
		}
	}
}
