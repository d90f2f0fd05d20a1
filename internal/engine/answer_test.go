package engine

import (
	"strings"
	"testing"
	"time"
)

func FuzzRepliesAreParsedOrRefused(f *testing.F) {
	for _, s := range []string{"G 1795210080033706 1795210080033706", "H 1 -1 a:1 12 4711@host a label", "J 1 30000 a:1 12 4711@host", "V 1", "S 2", "", "G", "G x y", "H 1 x", "OK",
		"G 1 5 +", "G 1 5 -", "G 1 5 6 7", "G 1 -5", "G 1 inf", "G 1", "H 1 9e+15 a:1 12 x", "H 1 9000000000000000 a:1 12 x", "H 1 30000 a:1 -5 x", "H 1 30000 a b 12 x", "X 1", "J"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := parse(s)
		if a.joined { // as H, and says so
			s = strings.Replace(s, "J", "H", 1)
		}
		if ok && (a.now == 0 && !strings.Contains(s, " 0") && !strings.Contains(s, " -0") && !strings.Contains(s, " +0") || a.status != s[0]) {
			t.Errorf("%q was read as %+v", s, a)
		}
		if !ok && a != (answer{}) {
			t.Errorf("%q is no answer, and gave %+v", s, a)
		}
		if a.left < -time.Millisecond || a.left > maxLeft {
			t.Errorf("%q: a time to live of %v", s, a.left)
		}
		if first, _, _ := strings.Cut(a.token, " "); ok && (a.status == 'G' || a.status == 'H') && (number(first) < 0 || itoa(number(first)) != strings.TrimLeft(first, "0") && number(first) != 0) {
			t.Errorf("%q: token %q", s, a.token)
		}
	})
}

func TestOnlyAnAnswerOfAScriptIsOne(t *testing.T) {
	for reply, want := range map[string]answer{
		"G 7 5":                     {status: 'G', now: 7, token: "5"},
		"G 7 5 6":                   {status: 'G', now: 7, token: "5 6"},
		"G 7 5 -":                   {status: 'G', now: 7, token: "5 -"},
		"H 7 20 a:1 5 1@h x":        {status: 'H', now: 7, left: 20 * time.Millisecond, holder: "a:1", token: "5", about: "1@h x"},
		"J 7 -1 a:1 5 ":             {status: 'H', now: 7, left: -time.Millisecond, holder: "a:1", token: "5", joined: true},
		"H 7 9000000000000000 a 5 ": {status: 'H', now: 7, left: maxLeft, holder: "a", token: "5"},
		"V 7":                       {status: 'V', now: 7},
		"G 7":                       {}, "G 7 -5": {}, "G 7 x": {}, "G 7 inf": {}, "G 7 9007199254740992": {}, "G 7 - 5": {}, "H 7 9e+15 a 5 ": {}, "H 7 20 a -5 ": {}, "H 7 20 a": {}, "X 7": {}, "G x 5": {},
	} {
		if got, ok := parse(reply); got != want || ok != (want != answer{}) {
			t.Errorf("%q: %+v, %v", reply, got, ok)
		}
	}
}
