package operate

import (
	"reflect"
	"testing"
	"time"
)

func TestAStateHasTheHoldersWhoseLeasesLast(t *testing.T) {
	st, err := DecodePermits(`{"now": "1000000", "limit": "4", "holders": ["a:1", "900000", "b:1", "3000000", "c:1", "9000000"],
		"held": {"u": "9", "a:1": "1 5 1@h x", "b:1": "3 6 42@db a label"}, "queue": ["d:1", "400000"], "about": {"d:1": "2 30000 nonce/+ 43@db "}}`)
	want := Permits{Limit: 4, Used: 3,
		Holders: []Party{{Owner: "b:1", Session: "b", Host: "db", PID: 42, Label: "a label", N: 3, Token: 6, Remaining: 2 * time.Second}},
		Queue:   []Party{{Owner: "d:1", Session: "d", Host: "db", PID: 43, N: 2, Age: 600 * time.Millisecond}}}
	if err != nil || !reflect.DeepEqual(st, want) {
		t.Errorf("%+v, %v\nwant %+v", st, err, want)
	}
	if st, err := DecodePermits(`{"now": "5"}`); err != nil || !reflect.DeepEqual(st, Permits{}) {
		t.Errorf("of nothing: %+v, %v", st, err)
	}
	if _, err := DecodePermits("?"); err == nil {
		t.Error("no error of what is no JSON")
	}
}
