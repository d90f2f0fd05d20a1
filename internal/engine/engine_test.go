package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What locks do is tested in rlock, on servers; here is what needs none.

func TestASlotServesInOrderAndOwnersTogether(t *testing.T) {
	var s slot
	a, b := new(Owner), new(Owner)
	if !s.enter(nil, true) || s.enter(nil, true) || s.enter(a, true) {
		t.Fatal("an empty slot admits one")
	}
	join := func(o *Owner) *turn {
		t := newTurn(&acquisition{as: o})
		s.queue.push(t)
		return t
	}
	answer := func(t *turn) bool { return (<-t.ready).in }
	first, canceled, second, third := join(nil), join(nil), join(a), join(a)
	if !canceled.remove() || canceled.remove() {
		t.Error("a turn is canceled once")
	}
	if !s.leave() || !answer(first) || first.remove() {
		t.Error("the first in the queue is not admitted")
	}
	if !s.leave() || !answer(second) || s.owner != a {
		t.Error("the canceled one was not passed over")
	}
	if !s.enter(a, true) || s.enter(a, false) || s.enter(b, true) || s.enter(nil, true) {
		t.Error("only the owner inside is let in beside itself, and only where that is shared")
	}
	if s.queue.turnAway(b); s.queue.first != third {
		t.Error("turned away another owner's")
	}
	if s.queue.turnAway(a); answer(third) || s.queue.first != nil {
		t.Error("who shares must look again")
	}
	if s.leave() || s.inside != 1 || s.leave() || s.inside != 0 || s.owner != nil {
		t.Errorf("%d inside in the end", s.inside)
	}
}

// alwaysGranted is a Mutex of a session of its own, whose scripts grant and release whatever is there.
func alwaysGranted(t *testing.T) Mutex {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: testredis.Embedded(t).Addr()})
	s, err := NewSession(rdb, SessionConfig{Prefix: "p", Lease: time.Minute, Liveness: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Shutdown(context.Background())
		_ = rdb.Close()
	})
	return NewMutex(s, &Protocol{Kind: Reentrant, Lock: NewScript("return 'G 1 1'"), Release: NewScript("return 'R'")}, "x", Config{})
}

// Where a context is observed by its Done channel alone, nothing but its hold knows the cause.
func TestAForgottenHoldEndsWithACauseOfItsOwn(t *testing.T) {
	m := alwaysGranted(t)
	h, err := m.acquire(context.Background(), Config{}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	(*entry)(h).forgotten()
	<-h.Done()
	if err := context.Cause(h); !errors.Is(err, errForgotten) || !errors.Is(err, ErrNotHeld) {
		t.Error(err)
	}
}

func TestTheLossOfAForgottenHoldIsNotItsOwners(t *testing.T) {
	m := alwaysGranted(t)
	collected := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !done(); runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatalf("still not: %s", what)
			}
		}
	}
	for _, lostFirst := range []bool{false, true} {
		ctx := WithOwner(context.Background())
		h, err := m.acquire(ctx, Config{Lease: time.Minute}, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, hd := h.st.lock, h.handle().returned()
		if lostFirst {
			h.st.end(lost, errExpired)
			runtime.GC()
			if !h.as.hasLost(l) {
				t.Error("the loss of a hold that can be unlocked is not counted")
			}
		}
		runtime.KeepAlive(hd)
		collected("forgotten", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return h.unlocked
		})
		if !lostFirst {
			h.st.end(lost, errExpired)
		}
		if h.as.hasLost(l) {
			t.Errorf("lost first %v: the loss of a forgotten hold is counted", lostFirst)
		}
	}
}

func TestAWaiterThatDoesNotListenHoldsUpNobody(t *testing.T) {
	var q turns
	turn := newTurn(nil) // whose observer takes its time
	q.push(turn)
	for range 5 {
		turn.stand()
	}
	turn.answer(admission{in: true}) // under lock.mu, so it must not block
	if !(<-turn.ready).stood || !(<-turn.ready).in {
		t.Error("not told both")
	}
}

func TestNobodyJoinsAGroupThatWasDeserted(t *testing.T) {
	l := &lock{line: &line{}}
	gone := &group{l: l, flying: true}
	gone.desert() // its request is not sent again
	turn := newTurn(&acquisition{})
	l.line.gathering.push(turn)
	if gone.fill(); turn.group != nil || l.line.gathering.first != turn {
		t.Error("somebody did")
	}
}

type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

func TestPrefixesNeedACompleteHashTagOrNone(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"p": true, "a:b": true, "{app}": true, "a{b}c": true, "{a}{": true,
		"": false, "{": false, "}": false, "{}": false, "a{}b": false, "}{": false, "a}b": false,
	} {
		if err := checkPrefix(prefix); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

func TestAPrefixHasNoKindOfLockInIt(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"app:{tenant}": true, "app:r": true, "r:{x}": true, "app:s:{x}": true, "redisson_lock_tokens": true, "a:redisson_lock_token:": true,
		"app:r:{tenant}": false, "app:f:{x}": false, "app:q:{x}:y": false, ":r:{x}": false,
		"redisson_lock_token": false, "redisson_lock_token:": false, "lockline_lock_memory:x": false,
	} {
		if err := checkPrefix(prefix); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// keysOf are the keys of a lock, without a prefix those with RedissonKeys; nil where it is refused.
func keysOf(prefix, kind, name string) []any {
	s := &Session{SessionConfig: SessionConfig{Prefix: prefix, Redisson: prefix == ""}}
	if prefix == "" && kind != Reentrant || prefix != "" && checkPrefix(prefix) != nil {
		return nil // the former is refused by NewMutex and NewQuorum
	}
	p := &Protocol{Kind: kind}
	if kind == Fair {
		p.Heartbeat = &wire.Script{}
	}
	m := NewMutex(s, p, name, Config{})
	if m.err != nil {
		return nil
	}
	return m.keys.boxed[1:]
}

func FuzzAKeyTellsWhoseItIs(f *testing.F) {
	for _, s := range [][2]string{
		{"app", "tenant}:r:{y"}, {"app:r:{tenant}", "y"}, {"a:r", "x"}, {"{a}", "}x"}, {"a:", `\}`}, {"a", "x}:t"}, {"a:{b}", "}:f:{c"},
		{"", "x"}, {"", "{x}"}, {"", "lockline:r:{x}"}, {"", "lockline_lock_memory:{x}"}, {"", "redisson_lock_token:x{y}"}, {"", "r:{x}"}, {"", ":r:{x}:t"},
		{"redisson_lock_token", "x"}, {"lockline_lock_memory:", "x"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, prefix, name string) {
		for _, kind := range kinds {
			made := keysOf(prefix, string(kind), name)
			for at, key := range made {
				key := key.(string)
				// Whatever lock might have this key, too.
				var others [][3]string
				for _, begin := range []string{"", redissonMemory + "{", redissonMemory + ":", redissonToken, redissonToken + "{"} {
					rest, ok := strings.CutPrefix(key, begin)
					if ok && strings.HasSuffix(begin, "{") {
						rest, ok = strings.CutSuffix(rest, "}")
					}
					if ok {
						others = append(others, [3]string{"", Reentrant, rest})
					}
				}
				for i := range key {
					for _, k := range kinds {
						tag, ok := strings.CutPrefix(key[i:], ":"+string(k)+":{")
						if !ok {
							continue
						}
						for _, end := range []string{"}", "}:t", "}:q", "}:a", "}:d"} {
							if tag, ok := strings.CutSuffix(tag, end); ok {
								others = append(others, [3]string{key[:i], string(k), tag}, [3]string{key[:i], string(k), strings.TrimPrefix(tag, `\`)})
							}
						}
					}
				}
				for _, o := range others {
					theirs := slices.Index(keysOf(o[0], o[1], o[2]), any(key))
					if theirs < 0 || o == [3]string{prefix, string(kind), name} && theirs == at {
						continue
					}
					if prefix == "" && o[0] == "" && at == 2 && theirs == 2 {
						continue // Redisson has one counter for x and {x}
					}
					t.Errorf("key %q is of %q and of %q", key, [3]string{prefix, string(kind), name}, o)
				}
			}
		}
	})
}

func TestALateRequestIsNeverWelcomeLongerThanItsLease(t *testing.T) {
	for _, lease := range []time.Duration{MinLease, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, time.Hour} {
		if p := patience(lease); p <= 0 || p > lease || p > 10*time.Second {
			t.Errorf("lease %v: patience %v", lease, p)
		}
		if v := valid(lease); v <= 0 || v >= lease {
			t.Errorf("lease %v: valid for %v", lease, v)
		}
	}
}

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

// What a script says of a value comes through the servers as it was.
func TestAScriptsRefusalIsToldInWords(t *testing.T) {
	err := refusal(reply("ERR user_script:1: LOCKLINE lockline:r:{a=20b}:t,t,zzz=0A=25,why . script: 12, on @user_script:1."))
	if want := (&valueError{"lockline:r:{a b}:t", "t", "zzz\n%", "why"}); err.Error() != want.Error() || wire.Judge(err) != (wire.Verdict{}) {
		t.Errorf("%v: %+v", err, wire.Judge(err))
	}
	for _, other := range []error{nil, io.EOF, reply("ERR LOCKLINE x"), reply("WRONGTYPE")} {
		if got := refusal(other); got != other {
			t.Errorf("%v became %v", other, got)
		}
	}
}
