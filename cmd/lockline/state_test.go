package main

import (
	"strings"
	"testing"
	"time"
)

func TestATokenSaysSinceWhenALockIsHeld(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	token := now.Add(-90 * time.Minute).UnixMicro()
	s := lockState{Name: "n", Kind: "reentrant"}
	s.hold(holder{party: party{Owner: "o"}, Token: token})
	s = s.aged(now)
	if s.HeldMS != 90*60*1000 || !s.Since.Equal(now.Add(-90*time.Minute)) {
		t.Errorf("held for %d ms, since %v", s.HeldMS, s.Since)
	}
	var out strings.Builder
	s.print(&out)
	if want := " since 2026-11-25T10:30:00Z, for 1h30m0s, "; !strings.Contains(out.String(), want) {
		t.Errorf("inspect says %q", &out)
	}
	for what, s := range map[string]lockState{
		"free":               {Token: token},
		"the holder's token": {Held: true, Holder: &party{}},
	} {
		if s = s.aged(now); s.Since != nil || s.HeldMS != 0 {
			t.Errorf("%s: since %v", what, s.Since)
		}
	}
	ahead := lockState{Held: true, Token: now.Add(time.Second).UnixMicro()}
	if ahead = ahead.aged(now); ahead.HeldMS != 0 {
		t.Errorf("the server's clock is ahead: held for %d ms", ahead.HeldMS)
	}
}

func TestEachHolderHasASince(t *testing.T) {
	now := time.Now()
	var s lockState
	for i := range 3 {
		s.hold(holder{Token: now.Add(-time.Duration(i) * time.Hour).UnixMicro()})
	}
	for i, h := range s.aged(now).Holders {
		if h.HeldMS/3600/1000 != int64(i) {
			t.Errorf("the holder %d: %s", i, h.text())
		}
	}
}

func TestPermitsAreNamed(t *testing.T) {
	someone := party{Owner: "o"}
	for permits, want := range map[int]string{1: "1 permit: o", 3: "3 permits: o"} {
		if got := (holder{party: someone, Permits: permits}).String(); got != want {
			t.Errorf("a holder: %q, want %q", got, want)
		}
		if got := (waiter{party: someone, Permits: permits}).String(); got != want {
			t.Errorf("a waiter: %q, want %q", got, want)
		}
	}
}
