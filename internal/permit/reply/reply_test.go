package reply

import (
	"errors"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

func TestAnswersSayWhatTheScriptsReplied(t *testing.T) {
	for text, want := range map[string]Answer{
		"G 5 7":                           {Status: Granted, Now: 5, Token: 7},
		"G 5 7 s:2 8 2000":                {Status: Granted, Now: 5, Token: 7, Served: []Served{{"s:2", 8, 2 * time.Second}}},
		"K 5":                             {Status: GoesOn, Now: 5},
		"V 5":                             {Status: Expired, Now: 5},
		"S 5":                             {Status: Stale, Now: 5},
		"R 5":                             {Status: Released, Now: 5},
		"L 5 s:2 8 1 s:3 9 1":             {Status: Lost, Now: 5, Served: []Served{{"s:2", 8, time.Millisecond}, {"s:3", 9, time.Millisecond}}},
		"Q 5 300 s:1 7\n42@host a label ": {Status: Queued, Now: 5, Left: 300 * time.Millisecond, Holder: "s:1", Token: 7, About: "42@host a label"},
		"Q 5 -1 - 0\n":                    {Status: Queued, Now: 5, Left: -time.Millisecond},
		"Q 5 -1 - 0 s:2 8 1\n":            {Status: Queued, Now: 5, Left: -time.Millisecond, Served: []Served{{"s:2", 8, time.Millisecond}}},
	} {
		if got, err := Read(wire.Outcome{Reply: text}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v\nwant %+v", text, got, err, want)
		}
	}
}

func TestAReplyThatNoScriptGivesIsAnError(t *testing.T) {
	for _, text := range []string{"", "G", "G ", "G 5", "G x 7", "G 5 x", "G 5 7 s:2", "G 5 7 s:2 8", "G 5 7 s:2 x 1", "G 5 7 s:2 8 x", "GG 5 7", "X 5", "V 5 7", "Q 5 1 s:1", "Q 5 x s:1 7", "Q 5 1 s:1 x"} {
		if got, err := Read(wire.Outcome{Reply: text}); !errors.As(err, new(wire.Unexpected)) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := Read(wire.Outcome{Reply: "G 5 7", Err: io.EOF}); err != io.EOF {
		t.Errorf("an error of the request: %v", err)
	}
}

func TestAStateHasTheHoldersWhoseLeasesLast(t *testing.T) {
	st, err := Decode(`{"now": "1000000", "limit": "4", "holders": ["a:1", "900000", "b:1", "3000000", "c:1", "9000000"],
		"held": {"u": "9", "a:1": "1 5 1@h x", "b:1": "3 6 42@db a label"}, "queue": ["d:1", "400000"], "about": {"d:1": "2 30000 nonce/+ 43@db "}}`)
	want := State{Limit: 4, Used: 3,
		Holders: []Party{{Owner: "b:1", Session: "b", Host: "db", PID: 42, Label: "a label", N: 3, Token: 6, Remaining: 2 * time.Second}},
		Queue:   []Party{{Owner: "d:1", Session: "d", Host: "db", PID: 43, N: 2, Age: 600 * time.Millisecond}}}
	if err != nil || !reflect.DeepEqual(st, want) {
		t.Errorf("%+v, %v\nwant %+v", st, err, want)
	}
	if st, err := Decode(`{"now": "5"}`); err != nil || !reflect.DeepEqual(st, State{}) {
		t.Errorf("of nothing: %+v, %v", st, err)
	}
	if _, err := Decode("?"); err == nil {
		t.Error("no error of what is no JSON")
	}
}
