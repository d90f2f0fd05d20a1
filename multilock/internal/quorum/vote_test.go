package quorum

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

func TestAVoteNotesTheAnswer(t *testing.T) {
	sent := time.Now()
	unknown := sent.Add(time.Hour) // while nothing is known
	for _, c := range []struct {
		reply    string
		accepted bool
		stored   int64
		free     time.Time
		nonce    string
	}{
		{"G 5 1007 +", true, 0, time.Time{}, ""},
		{"G 5 2000 -", false, 2000, time.Time{}, ""},
		{"H 5 300 s:1 77 nonce 1@me job", false, 77, sent.Add(301 * time.Millisecond), "nonce"},
		{"H 5 300 s:1 77 - 1@me job", false, 77, sent.Add(301 * time.Millisecond), ""}, // the server could not note that it waits
		{"H 5 -1 s:1 77 nonce 1@me job", false, 77, unknown, "nonce"},
		{"H 5 9000000000000 s:1 77 nonce 1@me job", false, 77, sent.Add(protocol.MaxRest + time.Millisecond), "nonce"},
		{"V 5", false, 0, unknown, ""},
		{"S 5", false, 0, unknown, ""},
	} {
		r, ok := protocol.ParseAnswer(c.reply)
		if !ok {
			t.Fatalf("%q is no answer", c.reply)
		}
		v := vote{free: unknown}
		v.fill(r, sent)
		if r.Status == protocol.Held {
			r.About = "1@me job"
		}
		if v.Answer != r || v.nonce != c.nonce || v.accepted != c.accepted || v.stored != c.stored || !v.free.Equal(c.free) {
			t.Errorf("%q: %+v", c.reply, v)
		}
	}
}

func TestAMemberMayHoldUnlessItsAnswerSaysNo(t *testing.T) {
	answer := func(s protocol.Status) protocol.Answer { return protocol.Answer{Status: s} }
	for _, c := range []struct {
		vote vote
		want bool
	}{
		{vote{}, false}, // not asked
		{vote{asked: true}, true},
		{vote{asked: true, Answer: answer(protocol.Granted)}, true},
		{vote{asked: true, Answer: answer(protocol.Held)}, false},
		{vote{asked: true, Answer: answer(protocol.Held), late: true}, true}, // a copy is under way
		{vote{asked: true, Answer: answer(failed)}, false},
		{vote{asked: true, Answer: answer(failed), late: true}, true},
	} {
		if got := c.vote.mayHold(); got != c.want {
			t.Errorf("%+v: %v", c.vote, got)
		}
	}
}

func TestOnlyAnAnswerMovesTheDeadlineOfAVote(t *testing.T) {
	now := time.Now()
	valid := protocol.Valid(time.Minute)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	for _, c := range []struct {
		what        string
		o           wire.Outcome
		lease       time.Duration
		until, kept time.Time
	}{
		{"renewed", wire.Outcome{Reply: "K", Sent: at(2)}, time.Minute, at(2).Add(valid), at(2)},
		{"sent earlier", wire.Outcome{Reply: "K", Sent: at(0)}, time.Minute, at(1).Add(valid), at(1)},
		{"a count, and no lease", wire.Outcome{Reply: "K", Sent: at(2)}, 0, at(1).Add(valid), at(2)},
		{"a shorter lease", wire.Outcome{Reply: "K", Sent: at(2)}, time.Second, at(1).Add(valid), at(2)},
		{"no answer", wire.Outcome{Err: errLate, Sent: at(2)}, time.Minute, at(1).Add(valid), at(1)},
		{"gone", wire.Outcome{Reply: "L", Sent: at(2)}, time.Minute, time.Time{}, time.Time{}},
	} {
		v := vote{until: at(1).Add(valid), kept: at(1)}
		v.renewed(c.o, c.lease)
		if !v.until.Equal(c.until) || !v.kept.Equal(c.kept) {
			t.Errorf("%s: held until %v after the start, found held at %v", c.what, v.until.Sub(now), v.kept.Sub(now))
		}
	}
}
