package quorum

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
)

// freeAt is when a majority is free of the present holders, as far as that is known. mu held.
func (b *round) freeAt() time.Time {
	return nth(b.votes, b.q.need-1, func(v *vote) time.Time { return v.free })
}

// Rest is the pause between rounds. It waits until a majority is free. A member counts as free by a message, when the holder's lease
// ends there, or after a gap in the subscription. Then it waits a random time more, so that waiters do not split the votes.
func (q *Quorum) Rest(g *protocol.Grant, news *wakeup.Listener, _ time.Duration, sleep func(time.Duration) error) error {
	b := roundOf(g)
	for {
		b.mu.Lock()
		d := time.Until(b.freeAt())
		b.mu.Unlock()
		if d <= 0 {
			break
		}
		if err := sleep(d); err != nil {
			return err
		}
		news.Each(b.heard) // some members may be free now
	}
	if b.split {
		b.losses++ // no voter has won: keep the voters further apart
	} else {
		b.losses = 0
	}
	for until := time.Now().Add(spread(b.took, b.losses)); ; {
		d := time.Until(until)
		if d <= 0 {
			return nil
		}
		if err := sleep(d); err != nil { // news may end it early, and change nothing
			return err
		}
	}
}

// spread is by how much rounds are kept apart at random, after so many in a row were lost.
func spread(took time.Duration, losses int) time.Duration {
	return rand.N(min(max(took, 200*time.Microsecond)<<min(losses, 8), 100*time.Millisecond))
}

// heard takes the messages of a member: 'GRANT USED NONCE', which grant is over there, and the last token that may have been
// used. A grant other than the one that was in the way changes nothing: others that lose rounds give back, too. A client
// that may only publish can name that grant, which costs a round. The token counts only with the nonce that the member's vote brought.
func (b *round) heard(i int, messages []string, gap bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[i]
	free := gap
	for _, message := range messages {
		grant, rest, _ := strings.Cut(message, " ")
		free = free || grant == v.Token
		if used, nonce, _ := strings.Cut(rest, " "); v.proves(nonce) {
			b.q.saw(protocol.TokenOrZero(used)) // else the next proposal could be in its way, and cost a second round
		}
	}
	if free {
		v.free = time.Time{}
	}
}
