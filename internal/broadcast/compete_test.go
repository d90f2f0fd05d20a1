package broadcast

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wire"
)

// refusal is a server's error that will not pass.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

func TestWhatFollowsAnAnswer(t *testing.T) {
	const (
		held     = "H 1 1000 s:1 77 me" // for a second
		expired  = "V 1"
		stale    = "S 1"
		granted  = "G"
		late     = "G late" // when its lease is over
		cut      = "cut"    // no answer
		copyLeft = "copy"   // no answer, and a copy may still arrive
		refused  = "refused"
		most     = protocol.MaxExpired
	)
	lease := fake.Config().Lease
	times := func(n int, answer string) []string { return slices.Repeat([]string{answer}, n) }
	in := func(lists ...[]string) []string { return slices.Concat(lists...) }
	for _, c := range []struct {
		what     string
		try      bool
		answers  []string // the last one again and again
		err      any      // nil: it is held
		asked    int      // 0: it depends on chance
		attempts int
		after    time.Duration // at least, and less than a second more
		released []string
	}{
		{what: "granted", answers: []string{granted}, asked: 1, attempts: 1},
		{what: "held", answers: []string{held, held, granted}, asked: 3, attempts: 1, after: 2 * time.Second},
		{what: "held, for TryLock", try: true, answers: []string{held}, err: failure.ErrLocked, asked: 1, attempts: 1},

		{what: "expired as often as is borne", answers: in(times(most, expired), []string{granted}), asked: most + 1, attempts: 1},
		{what: "always expired", answers: []string{expired}, err: "requests need longer", asked: most + 1, attempts: 1},
		{what: "an answer between", answers: in(times(most, expired), []string{held}, times(most, expired), []string{granted}), asked: 2*most + 2, attempts: 1, after: time.Second},

		{what: "stale", answers: []string{stale, granted}, asked: 2, attempts: 2},
		{what: "always stale", answers: []string{stale}, err: wire.Unexpected(stale), asked: most + 1, attempts: most + 1},
		{what: "granted too late", answers: []string{late, granted}, asked: 2, attempts: 2, released: []string{"release any"}},
		{what: "always granted too late", answers: []string{late}, err: mutex.ErrTooLate, asked: most + 1, attempts: most + 1, released: times(most+1, "release any")},

		// Whatever it says, it may have been granted.
		{what: "unexpected", answers: []string{"X"}, err: wire.Unexpected("X"), asked: 1, attempts: 1, released: []string{"release any"}},

		{what: "no answer to a newcomer", answers: []string{cut}, err: io.EOF, attempts: 1, after: lease},
		{what: "no answer to one that does not wait", try: true, answers: []string{cut}, err: io.EOF, asked: 1, attempts: 1},
		{what: "no answer, a copy is left", try: true, answers: []string{copyLeft}, err: io.EOF, asked: 1, attempts: 1, released: []string{"release any"}},
		{what: "no answer to one that was refused before", answers: in([]string{held}, times(4, cut), []string{granted}), asked: 6, attempts: 1, after: time.Second},
		{what: "an outage as long as the lease", answers: []string{held, cut}, err: io.EOF, attempts: 1, after: time.Second + lease},
		{what: "an error that will not pass", answers: []string{held, refused}, err: refused, asked: 2, attempts: 1, after: time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &fake.Store{}
				asked, attempts := 0, map[any]bool{}
				st.OnAsk = func(a *mutex.Acquisition) wire.Outcome {
					answer := c.answers[min(asked, len(c.answers)-1)]
					asked++
					attempts[a.Grant.Owner] = true
					switch answer {
					case granted:
						return st.Granted()
					case late:
						o := st.Granted()
						o.Sent = time.Now().Add(-lease)
						return o
					case copyLeft:
						a.Grant.Late = 1
						fallthrough
					case cut:
						return wire.Outcome{Sent: time.Now(), Err: io.EOF, Unanswered: io.EOF}
					case refused:
						return wire.Outcome{Sent: time.Now(), Err: refusal(refused)}
					}
					return wire.Outcome{Sent: time.Now(), Reply: answer}
				}
				m := newMutex(t, st)
				crowd := enter(t, m)
				start := time.Now()
				hold, err := acquire(t, m, bg, c.try)
				if after := time.Since(start); !is(err, c.err) || after < c.after || after >= c.after+time.Second {
					t.Errorf("%v after %v", err, after)
				}
				if c.asked != 0 && asked != c.asked || len(attempts) != c.attempts {
					t.Errorf("asked %d times, in %d attempts", asked, len(attempts))
				}
				synctest.Wait()
				released := slices.DeleteFunc(st.Requests(), func(r string) bool { return !strings.HasPrefix(r, "release") })
				if !slices.Equal(released, c.released) {
					t.Errorf("%q", released)
				}
				if c.err == nil {
					if err := hold.Unlock(bg); err != nil {
						t.Error(err)
					}
				}
				synctest.Wait()
				crowd.Mu.Lock()
				defer crowd.Mu.Unlock()
				if crowd.Root.Entries() > 0 {
					t.Error("the root gate is still entered")
				}
			})
		})
	}
}

// The server of a lock may be replaced by one of another version, and the user be given other rights.
func TestAWaiterListensWhereTheLastRefusalSaid(t *testing.T) {
	for _, c := range []struct {
		refusals string // their first letters
		want     []bool
	}{
		{"HHH", []bool{false}},
		{"PPP", []bool{true}},
		{"HPPHP", []bool{false, true, false, true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := &fake.Store{}
			asked, listened := 0, []bool{}
			st.OnListen = func(sharded bool) { listened = append(listened, sharded) }
			st.OnAsk = func(*mutex.Acquisition) wire.Outcome {
				if asked++; asked > len(c.refusals) {
					return st.Granted()
				}
				return wire.Outcome{Sent: time.Now(), Reply: c.refusals[asked-1:asked] + " 1 1000 s:1 77 me"}
			}
			unlock(t, take(t, newMutex(t, st)))
			if !slices.Equal(listened, c.want) {
				t.Errorf("refused by %s, it listened for sharded messages: %v, want %v", c.refusals, listened, c.want)
			}
		})
	}
}
