package quorum

import (
	"crypto/subtle"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// failed is the status of a vote whose request failed, beside those of package protocol.
const failed protocol.Status = 'E'

// vote is what is known of a round at one member. round.mu guards it.
type vote struct {
	protocol.Answer           // its Status is None until the vote is in; who holds the lock, if another does
	asked           bool      // never changed after the first request, but by mayJoin
	err             error     // of a request that failed
	accepted        bool      // a token of the round is stored there
	raised          int64     // the second round's, if that is the one
	stored          int64     // a token in the way that was heard of there
	nonce           string    // Held: what the message of the holder's release will carry; empty where it is not known
	notAfter        int64     // of the last copy sent
	late            bool      // a copy may still arrive
	until           time.Time // considered held until then
	kept            time.Time // when the last request left that found it held; zero if one did not since
	gone            time.Time // when the last request left that did not
	free            time.Time // when no other holds it, as far as is known
}

// mayHold: the attempt may have been granted there.
func (v *vote) mayHold() bool {
	return v.asked && (v.Status == protocol.None || v.Status == protocol.Granted || v.late)
}

// stored reads 'STORED +', the end of the block that was accepted, or 'STORED -', what is not below the proposal.
func stored(r protocol.Answer) (token int64, accepted bool) {
	word, mark, _ := strings.Cut(r.Token, " ")
	return protocol.TokenOrZero(word), mark == "+"
}

// fill notes an answer.
func (v *vote) fill(r protocol.Answer, sent time.Time) {
	v.Answer = r
	switch r.Status {
	case protocol.Granted:
		if token, accepted := stored(r); accepted {
			v.accepted = true
		} else {
			v.stored = token
		}
		v.free = time.Time{}
	case protocol.Held:
		v.stored = protocol.TokenOrZero(r.Token)
		if v.nonce, v.About, _ = strings.Cut(r.About, " "); v.nonce == "-" {
			v.nonce = ""
		}
		if r.Left >= 0 { // else no expiry: not a lock of ours, look again now and then
			v.free = sent.Add(min(r.Left, protocol.MaxRest) + time.Millisecond)
		}
	}
}

// proves: the message that carries this nonce is the server's own.
func (v *vote) proves(nonce string) bool {
	return v.nonce != "" && subtle.ConstantTimeCompare([]byte(v.nonce), []byte(nonce)) == 1
}

// renewed notes what a member said of a lease. Answers may come in another order than they were sent in.
func (v *vote) renewed(o wire.Outcome, lease time.Duration) {
	if o.Err != nil {
		return
	}
	switch until := o.Sent.Add(protocol.Valid(lease)); {
	case o.Reply != "K":
		v.until, v.kept = time.Time{}, time.Time{}
		if o.Sent.After(v.gone) {
			v.gone = o.Sent
		}
		return
	case o.Sent.Before(v.gone): // the answer may be of before it was gone
		return
	case lease > 0 && until.After(v.until):
		v.until = until
	}
	if o.Sent.After(v.kept) {
		v.kept = o.Sent
	}
}
