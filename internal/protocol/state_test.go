package protocol

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAStateIsWhatTheReplySays(t *testing.T) {
	for _, c := range []struct {
		of, reply string
		want      State
	}{
		{"a lock that nobody ever had", `{"ttl": -2}`, State{}},
		{"a free lock", `{"ttl": -2, "metadata": {"t": "7", "r": "7"}}`, State{Token: 7, Floor: 7}},
		{"a held lock", `{"ttl": 1500, "lock": {"a:1": "2", "t": "5", "s": "3", "d": "12@host a label"}, "metadata": {"t": "4", "z:1": "9"}}`,
			State{Held: true, Owner: "a:1", Session: "a", Host: "host", PID: 12, Label: "a label", Count: 2, Remaining: 1500 * time.Millisecond, Token: 5, Floor: 4, Over: []string{"z:1"}}},
		{"one that another library holds", `{"ttl": 1, "lock": {"b:2": "1"}, "metadata": {"t": "4"}}`,
			State{Held: true, Owner: "b:2", Session: "b", Count: 1, Remaining: time.Millisecond, Floor: 4}},
		{"one without an end", `{"ttl": -1, "lock": {"b:2": "1"}}`, State{Held: true, Owner: "b:2", Session: "b", Count: 1}},
		{"one of a thousand years", `{"ttl": 3.2e+13, "lock": {"b:2": "1"}}`, State{Held: true, Owner: "b:2", Session: "b", Count: 1, Remaining: MaxLeft}},
		{"a token that is none", `{"ttl": -2, "metadata": {"t": "-7"}}`, State{}},
	} {
		c.want.Name = "x"
		if got, err := DecodeState("x", c.reply); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", c.of, got, err)
		}
	}
}

func TestAStateShowsTheQueueInItsOrder(t *testing.T) {
	got, err := DecodeState("x", `{"ttl": -2, "now": "5000000", "queue": ["b:9", "2000000", "a:1", "4000000", "c:1", "9000000", "d:1", "x"],
		"about": {"a:1": "2 30000 nonce 12@host a label", "c:1": "0 30000  @", "d:1": "1000000 1 n 1@h"}}`)
	if err != nil {
		t.Fatal(err)
	}
	a := Waiter{Owner: "a:1", Session: "a", Host: "host", PID: 12, Label: "a label", Age: time.Second}
	want := []Waiter{{Owner: "b:9", Session: "b", Age: 3 * time.Second}, a, a, {Owner: "c:1", Session: "c"}}
	if len(got.Queue) != len(want)+Block || !reflect.DeepEqual(got.Queue[:len(want)], want) {
		t.Fatalf("%d wait: %+v", len(got.Queue), got.Queue[:min(len(want), len(got.Queue))])
	}
	for _, w := range got.Queue[len(want):] {
		if w != (Waiter{Owner: "d:1", Session: "d", Host: "h", PID: 1}) {
			t.Fatalf("%+v", w)
		}
	}
}

func TestAReplyThatIsNoStateIsAnError(t *testing.T) {
	for _, reply := range []string{"", "OK", `{"ttl": "x"}`, `{"lock": []}`} {
		if st, err := DecodeState("x", reply); err == nil || !reflect.DeepEqual(st, State{}) || !strings.Contains(err.Error(), "unexpected reply") {
			t.Errorf("%q: %+v, %v", reply, st, err)
		}
	}
}
