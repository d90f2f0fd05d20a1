package protocol

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAStateIsWhatTheReplySays(t *testing.T) {
	held := func(st State, holders ...Holder) State {
		st.Held, st.Holder, st.Holders = true, holders[0], holders
		return st
	}
	free := func(token int64) State { return State{Holder: Holder{Token: token}, Floor: token} }
	type decoder func(name, reply string) (State, error)
	for _, c := range []struct {
		decode    decoder
		of, reply string
		want      State
	}{
		{DecodeLock, "a lock that nobody ever had", `{"now": "5"}`, State{}},
		{DecodeLock, "a free lock", `{"now": "5", "lock": {"token": "7", "released": "7"}}`, free(7)},
		{DecodeLock, "a held lock", `{"now": "1000", "lock": {"owner": "a:1", "ends": "1501000", "token": "5",
			"count": "2", "change": "3", "info": "12@host a label", "lingers": "1", "z:1": "9"}}`,
			held(State{Floor: 5, Over: []string{"z:1"}},
				Holder{Owner: "a:1", Session: "a", Host: "host", PID: 12, Label: "a label", Count: 2,
					Token:   5,
					Lingers: true, Remaining: 1500 * time.Millisecond})},
		{DecodeLock, "one whose lease is over",
			`{"now": "1000", "lock": {"owner": "a:1", "ends": "1000", "token": "5", "count": "2"}}`, free(5)},
		{DecodeLock, "one with a floor", `{"now": "5", "lock": {"token": "7", "floor": "9"}}`,
			State{Holder: Holder{Token: 7}, Floor: 9}},
		{DecodeLock, "one of a thousand years", `{"now": "5", "lock": {"owner": "b:2", "ends": "3.2e+16"}}`,
			held(State{}, Holder{Owner: "b:2", Session: "b", Remaining: MaxLeft})},
		{DecodeLock, "a token that is none", `{"now": "5", "lock": {"token": "-7"}}`, State{}},
		{DecodeRedisson, "a lock that nobody ever had", `{"ttl": -2}`, State{}},
		{DecodeRedisson, "a free lock", `{"ttl": -2, "metadata": {"t": "7", "r": "7"}}`, free(7)},
		{DecodeRedisson, "a held lock", `{"ttl": 1500, "lock": {"a:1": "2", "t": "5", "s": "3",
			"d": "12@host a label"}, "metadata": {"t": "4", "z:1": "9"}}`,
			held(State{Floor: 4, Over: []string{"z:1"}},
				Holder{Owner: "a:1", Session: "a", Host: "host", PID: 12, Label: "a label", Count: 2,
					Token:     5,
					Remaining: 1500 * time.Millisecond})},
		{DecodeRedisson, "a hash without an owner",
			`{"ttl": 1500, "lock": {"t": "5"}, "metadata": {"t": "7"}}`, free(7)},
		{DecodeRedisson, "one that a JVM holds", `{"ttl": 1, "lock": {"b:2": "1"}, "metadata": {"t": "4"}}`,
			held(State{Floor: 4},
				Holder{Owner: "b:2", Session: "b", Count: 1, Remaining: time.Millisecond})},
		{DecodeRedisson, "one without an end", `{"ttl": -1, "lock": {"b:2": "1"}}`,
			held(State{}, Holder{Owner: "b:2", Session: "b", Count: 1})},
		{DecodeRedisson, "one of a thousand years", `{"ttl": 3.2e+13, "lock": {"b:2": "1"}}`,
			held(State{}, Holder{Owner: "b:2", Session: "b", Count: 1, Remaining: MaxLeft})},
		{DecodeLock, "permits that nobody uses", `{"now": "5", "lock": {"limit": "4", "token": "7"}}`,
			State{Limit: 4, Floor: 7, Holder: Holder{Token: 7}}},
		{DecodeLock, "permits, of which one lease is over", `{"now": "1000000",
			"lock": {"limit": "4", "owner": "e:1", "ends": "4000000", "token": "7", "permits": "1",
				"info": "1@h ", "count": "1", "shared": "4", "held a:1": "1 5 - 1@h x",
				"held b:1": "3 6 2 42@db a label"},
			"leases": ["a:1", "900000", "b:1", "3000000", "c:1", "9000000"],
			"queue": ["d:1", "400000"], "waiters": {"d:1": "9 2 30000 nonce/+ 43@db "}}`,
			held(State{Limit: 4, Floor: 7, Queue: []Waiter{
				{Owner: "d:1", Session: "d", Host: "db", PID: 43, Permits: 2, Age: 600 * time.Millisecond}}},
				Holder{Owner: "b:1", Session: "b", Host: "db", PID: 42, Label: "a label", Permits: 3,
					Token: 6, Remaining: 2 * time.Second, Lingers: true},
				Holder{Owner: "e:1", Session: "e", Host: "h", PID: 1, Permits: 1, Token: 7,
					Remaining: 3 * time.Second})},
		{DecodeLock, "readers, behind whom one waits to write", `{"now": "0",
			"lock": {"limit": "1000000000", "permits": "1", "owner": "a:1", "ends": "1000", "token": "5",
				"floor": "6", "info": "1@h ", "shared": "1", "held b:1": "1 6 - 2@h "},
			"leases": ["b:1", "2000"], "queue": ["c:1", "0", "d:1", "0"],
			"waiters": {"c:1": "9 1000000000 1 n 3@h ", "d:1": "9 1 1 n 4@h "}}`,
			held(State{Floor: 6, Queue: []Waiter{{Owner: "c:1", Session: "c", Host: "h", PID: 3},
				{Owner: "d:1", Session: "d", Host: "h", PID: 4, Shared: true}}},
				Holder{Owner: "a:1", Session: "a", Host: "h", PID: 1, Shared: true, Token: 5,
					Remaining: time.Millisecond},
				Holder{Owner: "b:1", Session: "b", Host: "h", PID: 2, Shared: true, Token: 6,
					Remaining: 2 * time.Millisecond})},
		{DecodeLock, "a writer", `{"now": "0", "lock": {"limit": "1000000000", "permits": "1000000000",
			"owner": "a:1", "ends": "1000", "token": "5", "info": "1@h ", "count": "1"}}`,
			held(State{Floor: 5}, Holder{Owner: "a:1", Session: "a", Host: "h", PID: 1, Token: 5,
				Remaining: time.Millisecond})},
	} {
		c.want.Name = "x"
		if got, err := c.decode("x", c.reply); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, not %+v", c.of, got, err, c.want)
		}
	}
}

func TestAStateShowsTheQueueInItsOrder(t *testing.T) {
	got, err := DecodeLock("x", `{"now": "5000000",
		"queue": ["b:9", "2000000", "a:1", "4000000", "c:1", "9000000", "d:1", "x"],
		"waiters": {"a:1": "7 2 30000 nonce 12@host a label", "c:1": "7 0 30000  @",
			"d:1": "7 1000000 1 n 1@h"}}`)
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
	type decoder func(name, reply string) (State, error)
	for _, decode := range []decoder{DecodeLock, DecodeRedisson} {
		for _, reply := range []string{"", "OK", `{"now": 5, "ttl": "x"}`, `{"lock": []}`} {
			st, err := decode("x", reply)
			if err == nil || !reflect.DeepEqual(st, State{}) ||
				!strings.Contains(err.Error(), "unexpected reply") {
				t.Errorf("%q: %+v, %v", reply, st, err)
			}
		}
	}
}
