package multilock

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// at returns the time n seconds after a fixed time.
func at(n int) time.Time { return time.Unix(int64(n), 0) }

// votesOf returns a tally with one vote for each text. The text of a vote is the first letter of its kind.
// For a grant, a number follows, such as g5. It is the token, and the grant is valid until at(5).
func votesOf(t *testing.T, text ...string) (votes tally) {
	t.Helper()
	kinds := map[byte]voteKind{'p': pending, 'g': granted, 'r': refused, 'f': failed, 'b': broken}
	for _, s := range text {
		v := vote{kind: kinds[s[0]]}
		if v.kind == granted {
			n := 0
			if _, err := fmt.Sscan(s[1:], &n); err != nil {
				t.Fatal(err)
			}
			v.token, v.validUntil = int64(n), at(n)
		}
		votes = append(votes, v)
	}
	return votes
}

func TestATallyDecidesByMajorities(t *testing.T) {
	for _, c := range []struct {
		votes                      []string
		won, open, bare, explained bool
		token                      int64
		validUntil                 time.Time
	}{
		{votes: []string{"p"}, open: true, bare: true},
		{votes: []string{"g7"}, won: true, bare: true, explained: true, token: 7, validUntil: at(7)},
		{votes: []string{"g7", "p"}, open: true, bare: true},
		{votes: []string{"g7", "r"}, bare: true, explained: true},
		{votes: []string{"g7", "g5"}, won: true, bare: true, explained: true, token: 7, validUntil: at(5)},
		{votes: []string{"p", "p", "p"}, open: true, bare: true},
		{votes: []string{"g3", "p", "p"}, open: true, bare: true},
		{votes: []string{"g3", "r", "p"}, open: true, bare: true, explained: true},
		{votes: []string{"r", "f", "p"}, bare: true},
		{votes: []string{"r", "r", "p"}, bare: true, explained: true},
		{votes: []string{"f", "b", "p"}, bare: true, explained: true},
		{votes: []string{"g3", "g9", "r"}, won: true, bare: true, explained: true, token: 9,
			validUntil: at(3)},
		{votes: []string{"g3", "g9", "g5"}, won: true, explained: true, token: 5, validUntil: at(5)},
		{votes: []string{"g3", "g9", "g5", "r"}, won: true, bare: true, explained: true, token: 9,
			validUntil: at(3)},
		{votes: []string{"g2", "g8", "g4", "f", "g6"}, won: true, explained: true, token: 6,
			validUntil: at(4)},
		{votes: []string{"g2", "g8", "p", "f", "r"}, open: true, bare: true, explained: true},
		{votes: []string{"g2", "r", "p", "f", "r"}, bare: true, explained: true},
	} {
		v := votesOf(t, c.votes...)
		if got := v.won(); got != c.won {
			t.Errorf("%v: won: %v", c.votes, got)
		}
		if got := v.open(); got != c.open {
			t.Errorf("%v: open: %v", c.votes, got)
		}
		if got := v.bare(); got != c.bare {
			t.Errorf("%v: bare: %v", c.votes, got)
		}
		if got := v.explained(); got != c.explained {
			t.Errorf("%v: explained: %v", c.votes, got)
		}
		if got := v.token(); got != c.token {
			t.Errorf("%v: token %d, not %d", c.votes, got, c.token)
		}
		if got := v.validUntil(); !got.Equal(c.validUntil) {
			t.Errorf("%v: valid until %v, not %v", c.votes, got, c.validUntil)
		}
	}
}

func TestATokenIsSafeOnceAMajorityHasStoredIt(t *testing.T) {
	for _, c := range []struct {
		votes []string
		low   []int // servers to which the token can be sent
		safe  bool  // without sending the token to these servers
	}{
		{[]string{"g5", "g5", "g5"}, nil, true},
		{[]string{"g3", "g9", "g5"}, []int{0}, true},
		{[]string{"g3", "g9", "r"}, []int{0}, false},
		{[]string{"g3", "g9", "p", "r", "g4"}, []int{0, 4}, false},
		{[]string{"g7", "g5"}, []int{1}, false},
	} {
		v := votesOf(t, c.votes...)
		stored := v.stored(v.token())
		if low := stored.servers(pending); !slices.Equal(low, c.low) || stored.won() != c.safe {
			t.Errorf("%v: servers %v are below token %d, safe: %v", c.votes, low, v.token(), stored.won())
		}
	}
}

// naive is a tally that decides by looking at each set of servers. It does not count votes or sort tokens.
type naive tally

// sets calls f for each set of servers that is a majority.
func (n naive) sets(f func(in func(i int) bool)) {
	for set := range 1 << len(n) {
		size := 0
		for i := range n {
			size += set >> i & 1
		}
		if size > len(n)-size {
			f(func(i int) bool { return set>>i&1 == 1 })
		}
	}
}

// exists reports whether there is a majority for all of whose votes so returns true.
func (n naive) exists(so func(v vote) bool) (exists bool) {
	n.sets(func(in func(int) bool) {
		all := true
		for i, v := range n {
			all = all && (!in(i) || so(v))
		}
		exists = exists || all
	})
	return exists
}

func (n naive) of(kinds ...voteKind) bool {
	return n.exists(func(v vote) bool { return slices.Contains(kinds, v.kind) })
}

// without reports whether there is a majority that has no vote of these kinds.
func (n naive) without(kinds ...voteKind) bool {
	return n.exists(func(v vote) bool { return !slices.Contains(kinds, v.kind) })
}

// The fuzz test also checks that the token of the next holder is higher (checkToken).
func FuzzATallyAgreesWithANaiveModel(f *testing.F) {
	f.Add([]byte{1, 5, 1, 3, 1, 9}, uint8(3))
	f.Add([]byte{1, 5, 2, 0, 0, 0, 3, 0, 4, 0}, uint8(0))
	f.Add([]byte{1, 5, 1, 5, 1, 4, 1, 4}, uint8(1))
	f.Add([]byte{1, 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1, 7}, uint8(77))
	f.Fuzz(func(t *testing.T, data []byte, stores uint8) {
		var votes tally
		for ; len(data) >= 2 && len(votes) < 7; data = data[2:] {
			v := vote{kind: voteKind(data[0] % 5)}
			if v.kind == granted {
				v.token, v.validUntil = int64(data[1]>>4)+1, at(int(data[1]&15)+1)
			}
			votes = append(votes, v)
		}
		if len(votes) == 0 {
			return
		}
		n := naive(votes)
		won := n.of(granted)
		for _, c := range []struct {
			what       string
			got, wants bool
		}{
			{"won", votes.won(), won},
			{"open", votes.open(), !won && n.of(granted, pending)},
			{"blocked by refusals", votes.blocked(refused), !n.without(refused)},
			{"blocked by errors", votes.blocked(failed, broken), !n.without(failed, broken)},
			{"a majority has answered", votes.majority(granted, refused), n.of(granted, refused)},
		} {
			if c.got != c.wants {
				t.Errorf("%v: %s: %v", votes, c.what, c.got)
			}
		}
		for i := range votes { // is there a majority without the grant of server i?
			if votes[i].kind != granted {
				continue
			}
			fewer := slices.Clone(n)
			fewer[i].kind = failed
			if votes.bare() == fewer.of(granted) {
				t.Errorf("%v: bare: %v", votes, votes.bare())
			}
		}
		if !won {
			if votes.token() != 0 || !votes.validUntil().IsZero() {
				t.Errorf("%v: token %d until %v without a majority", votes, votes.token(), votes.validUntil())
			}
			return
		}
		checkTime(t, votes, n)
		checkToken(t, votes, n, stores)
	})
}

// checkTime compares validUntil with the model at each second: at that time, there is a majority of valid
// grants, or not.
func checkTime(t *testing.T, votes tally, n naive) {
	until := votes.validUntil()
	for sec := range 20 {
		valid := n.exists(func(v vote) bool { return v.kind == granted && v.validUntil.After(at(sec)) })
		if valid != until.After(at(sec)) {
			t.Errorf("%v: valid at %d s: %v, but until %v", votes, sec, valid, until)
		}
	}
}

// checkToken checks that the token is the smallest number that the grants of a majority do not exceed. Then
// the servers whose bits are set in stores store the token. If the tally says that the token is safe, the
// next hold must have a higher token, on each majority, even if each server grants its lowest possible token.
func checkToken(t *testing.T, votes tally, n naive, stores uint8) {
	token := votes.token()
	upTo := func(most int64) bool {
		return n.exists(func(v vote) bool { return v.kind == granted && v.token <= most })
	}
	if !upTo(token) || upTo(token-1) {
		t.Errorf("%v: token %d", votes, token)
	}
	stored := votes.stored(token)
	later := make([]int64, len(votes)) // lowest token that a server may grant to the next holder
	for i, v := range votes {
		if v.kind == granted {
			later[i] = v.token + 1
		} else {
			later[i] = 1
		}
		if stored[i].kind == pending && stores>>i&1 == 1 {
			stored[i].kind, later[i] = granted, token+1
		}
	}
	grows := true
	n.sets(func(in func(int) bool) {
		next := newTally(len(votes), refused)
		for i := range next {
			if in(i) {
				next[i] = vote{kind: granted, token: later[i]}
			}
		}
		grows = grows && next.token() > token
	})
	// If the number of servers is even, one server fewer would be sufficient, so the tally may say that a
	// token is not safe although it is.
	if odd := len(votes)%2 == 1; stored.won() && !grows || odd && grows && !stored.won() {
		t.Errorf("%v: token %d is stored by %v; the next is higher: %v", votes, token, stored, grows)
	}
}
