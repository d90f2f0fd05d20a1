package protocol

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

func FuzzRepliesAreParsedOrRefused(f *testing.F) {
	for _, s := range []string{"G 1795210080033706 1795210080033706", "Q 1 -1 a:1 12\n4711@host a label",
		"V 1", "S 2", "", "G", "G x y", "Q 1 x", "OK",
		"G 1 5 +", "G 1 5 -", "QP 1 30000 a:1 12\n4711@host", "QBD 1 30000 a:1 12\n4711@host", "G 1 5 6 7",
		"G 1 5 a:1 6 7", "G 1 -5", "G 1 inf", "G 1",
		"Q 1 9e+15 a:1 12\nx", "Q 1 9000000000000000 a:1 12\nx", "Q 1 30000 a:1 -5\nx", "Q 1 30000 a b 12\nx",
		"X 1", "R", "L a:1 6 7", "K 1", "N 1 5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Read(wire.Outcome{Reply: s})
		if err != nil {
			if !reflect.DeepEqual(a, Answer{}) {
				t.Errorf("%q is no answer, and gave %+v", s, a)
			}
			return
		}
		if a.Status != Status(s[0]) || a.Now == 0 && !strings.Contains("RL", s[:1]) &&
			!strings.Contains(s, " 0") {
			t.Errorf("%q was read as %+v", s, a)
		}
		if a.Left < -time.Millisecond || a.Left > MaxLeft {
			t.Errorf("%q: a time to live of %v", s, a.Left)
		}
		if a.Token < 0 || a.Token != 0 && !strings.Contains(s, Number(a.Token)) {
			t.Errorf("%q: token %d", s, a.Token)
		}
	})
}

func TestAnAnswerSaysWhatTheScriptReplied(t *testing.T) {
	const left = 20 * time.Millisecond
	for reply, want := range map[string]Answer{
		"G 7 5": {Status: Granted, Now: 7, Token: 5},
		"GKDP 7 5": {Status: Granted, Now: 7, Token: 5, MayLinger: true, NoSubscriber: true,
			Sharded: true},
		"G 7 5 s:2 8 2000": {Status: Granted, Now: 7, Token: 5,
			Served: []Served{{"s:2", 8, 2 * time.Second}}},
		"K 7":   {Status: GoesOn, Now: 7},
		"N 7 2": {Status: Limited, Now: 7, Limit: 2},
		"Q 7 20 a:1 5\n1@h a label ": {Status: Queued, Now: 7, Left: left, Holder: "a:1", Token: 5,
			About: "1@h a label"},
		"QP 7 20 a:1 5\n1@h x": {Status: Queued, Now: 7, Left: left, Holder: "a:1", Token: 5,
			About: "1@h x", Sharded: true},
		"QBD 7 20 a:1 5\n": {Status: Queued, Now: 7, Left: left, Holder: "a:1", Token: 5,
			Behind: true, NoSubscriber: true},
		"Q 7 -2 a:1 5\n": {Status: Queued, Now: 7, Holder: "a:1", Token: 5},
		"Q 7 -1 - 0 s:2 8 1\n": {Status: Queued, Now: 7, Left: -time.Millisecond,
			Served: []Served{{"s:2", 8, time.Millisecond}}},
		"Q 7 9000000000000000 a 5": {Status: Queued, Now: 7, Left: MaxLeft, Holder: "a", Token: 5},
		"V 7":                      {Status: Expired, Now: 7},
		"S 7":                      {Status: Stale, Now: 7},
		"R":                        {Status: Released},
		"L s:2 8 1 s:3 9 1": {Status: Lost,
			Served: []Served{{"s:2", 8, time.Millisecond}, {"s:3", 9, time.Millisecond}}},
	} {
		if got, err := Read(wire.Outcome{Reply: reply}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v\nwant %+v", reply, got, err, want)
		}
	}
}

func TestAReplyThatNoScriptGivesIsAnError(t *testing.T) {
	for _, reply := range []string{"", " ", "OK", "G", "G ", "G 7", "GG 7 5", "GB 7 5", "QK 7 20 a 5",
		"GX7 5", "G x 5", "G 7 x", "G 7 5 6", "G 7 5 +", "G 7 -5", "G 7 inf",
		"G 7 9007199254740992", "G 7 - 5", "G 7 5 s:2", "G 7 5 s:2 8", "G 7 5 s:2 x 1", "G 7 5 s:2 8 x",
		"X 7", "V 7 5", "V", "N 7", "Qx 7 20 a 5", "Q 7 20 a",
		"Q 7 9e+15 a 5", "Q 7 20 a -5", "Q 7 20 a x", "Q 7 20 a b 5", "R x", "R -1", "R s:2 8"} {
		if got, err := Read(wire.Outcome{Reply: reply}); !errors.As(err, new(wire.Unexpected)) ||
			!reflect.DeepEqual(got, Answer{}) {
			t.Errorf("%q: %+v, %v", reply, got, err)
		}
	}
	if _, err := Read(wire.Outcome{Reply: "G 7 5", Err: io.EOF}); err != io.EOF {
		t.Errorf("an error of the request: %v", err)
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
