package protocol

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

func FuzzRepliesAreParsedOrRefused(f *testing.F) {
	for _, s := range []string{"G 1795210080033706 1795210080033706", "H 1 -1 a:1 12 4711@host a label", "V 1", "S 2", "", "G", "G x y", "H 1 x", "OK",
		"G 1 5 +", "G 1 5 -", "P 1 30000 a:1 12 4711@host", "W 1 30000 a:1 12 4711@host", "G 1 5 6 7", "G 1 -5", "G 1 inf", "G 1", "H 1 9e+15 a:1 12 x", "H 1 9000000000000000 a:1 12 x", "H 1 30000 a:1 -5 x", "H 1 30000 a b 12 x", "X 1", "J"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := ParseAnswer(s)
		if a.Behind {
			s = strings.Replace(s, "W", "H", 1)
		}
		if a.Sharded {
			s = strings.Replace(s, "P", "H", 1)
		}
		if ok && (a.Now == 0 && !strings.Contains(s, " 0") && !strings.Contains(s, " -0") && !strings.Contains(s, " +0") || a.Status != Status(s[0])) {
			t.Errorf("%q was read as %+v", s, a)
		}
		if !ok && a != (Answer{}) {
			t.Errorf("%q is no answer, and gave %+v", s, a)
		}
		if a.Left < -time.Millisecond || a.Left > MaxLeft {
			t.Errorf("%q: a time to live of %v", s, a.Left)
		}
		if a.Token < 0 || ok && a.Token != 0 && !strings.Contains(s, Number(a.Token)) {
			t.Errorf("%q: token %d", s, a.Token)
		}
	})
}

func TestOnlyAnAnswerOfAScriptIsOne(t *testing.T) {
	for reply, want := range map[string]Answer{
		"G 7 5":                     {Status: Granted, Now: 7, Token: 5},
		"H 7 20 a:1 5 1@h x":        {Status: Held, Now: 7, Left: 20 * time.Millisecond, Holder: "a:1", Token: 5, About: "1@h x"},
		"P 7 20 a:1 5 1@h x":        {Status: Held, Now: 7, Left: 20 * time.Millisecond, Holder: "a:1", Token: 5, About: "1@h x", Sharded: true},
		"H 7 -5 a:1 5 ":             {Status: Held, Now: 7, Left: -time.Millisecond, Holder: "a:1", Token: 5},
		"H 7 9000000000000000 a 5 ": {Status: Held, Now: 7, Left: MaxLeft, Holder: "a", Token: 5},
		"V 7":                       {Status: Expired, Now: 7},
		"S 7":                       {Status: Stale, Now: 7},
		"G 7":                       {}, "G 7 5 6": {}, "G 7 5 +": {}, "G 7 -5": {}, "G 7 x": {}, "G 7 inf": {}, "G 7 9007199254740992": {}, "G 7 - 5": {}, "H 7 9e+15 a 5 ": {}, "H 7 20 a -5 ": {}, "H 7 20 a": {}, "X 7": {}, "GX7 5": {}, "G x 5": {},
	} {
		if got, ok := ParseAnswer(reply); got != want || ok != (want != Answer{}) {
			t.Errorf("%q: %+v, %v", reply, got, ok)
		}
	}
}

func TestATokenIsANumberThatLuaHoldsExactly(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "12": 12, "9007199254740991": 1<<53 - 1} {
		if n, ok := Token(s); n != want || !ok || TokenOrZero(s) != want {
			t.Errorf("%q: %d, %v", s, n, ok)
		}
	}
	for _, s := range []string{"", "-1", "+1", "1.5", "9e+15", "9007199254740992", "x", "1 2"} {
		if n, ok := Token(s); n != 0 || ok || TokenOrZero(s) != 0 {
			t.Errorf("%q is read as %d, %v, %d", s, n, ok, TokenOrZero(s))
		}
	}
}

func TestAnOutcomeIsReadAsItsErrorOrItsAnswer(t *testing.T) {
	if r, err := Read(wire.Outcome{Reply: "V 7"}); err != nil || r != (Answer{Status: Expired, Now: 7}) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := Read(wire.Outcome{Err: io.EOF}); err != io.EOF || r != (Answer{}) {
		t.Errorf("%+v, %v", r, err)
	}
	var unexpected wire.Unexpected
	if r, err := Read(wire.Outcome{Reply: "OK"}); !errors.As(err, &unexpected) || unexpected != "OK" || r != (Answer{}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAnAttemptMayHoldWhatWasGrantedAndWhatNobodyKnows(t *testing.T) {
	for _, c := range []struct {
		outcome wire.Outcome
		want    bool
	}{
		{wire.Outcome{Reply: "G 7 5"}, true},
		{wire.Outcome{Reply: "H 7 20 a:1 5 "}, false},
		{wire.Outcome{Reply: "V 7"}, false},
		{wire.Outcome{Reply: "S 7"}, false},
		{wire.Outcome{Reply: "OK"}, true}, // somebody changed the script's reply
		{wire.Outcome{Err: io.EOF}, false},
	} {
		r, _ := Read(c.outcome)
		if got := MayHold(&Grant{}, c.outcome, r); got != c.want {
			t.Errorf("%+v: %v", c.outcome, got)
		}
		if !MayHold(&Grant{Late: 7}, c.outcome, r) {
			t.Errorf("%+v: an earlier copy may be granted yet", c.outcome)
		}
	}
}
