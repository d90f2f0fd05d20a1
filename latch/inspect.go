package latch

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
)

// State is a latch at one instant.
type State struct {
	Name    string
	Count   int      // 0: no run is under way
	Parties []Member // those that have joined and not counted, in the order in which their leases end
}

// Member is a party, as Redis has it.
type Member struct {
	Name    string // of the party
	Owner   string // session id and number of the Join
	Session string // id of its session
	// Remaining is of the lease, if it is not renewed. 0: it is over, so waits end with a *[PartyDiedError].
	Remaining time.Duration
}

// Inspect asks Redis for the count and the parties. It changes nothing, and does not keep the latch from
// expiring. Redis does not know which processes wait. It blocks for one request, not longer than ctx.
func (l *Latch) Inspect(ctx context.Context) (State, error) {
	b, done, err := l.begin(ctx)
	if err != nil {
		return State{Name: l.Name()}, err
	}
	defer done()
	st := State{Name: l.keys.Name}
	a, err := l.ask(b, inspectScript)
	if err != nil {
		return st, err
	}
	if a.status != 'I' || !st.read(a.rest) {
		return State{Name: st.Name}, l.unexpected(a)
	}
	return st, nil
}

// read takes what inspect.lua says after the time.
func (st *State) read(text string) (ok bool) {
	if text == "" {
		return true
	}
	count, text, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(count)
	if err != nil {
		return false
	}
	for text != "" {
		words := strings.SplitN(text, " ", 4)
		if len(words) < 4 {
			return false
		}
		left, isTime := protocol.Remaining(words[0])
		size, err := strconv.Atoi(words[2])
		if err != nil || !isTime || size < 0 || size > len(words[3]) {
			return false
		}
		session, _, _ := strings.Cut(words[1], ":")
		st.Parties = append(st.Parties, Member{words[3][:size], words[1], session, left})
		text = strings.TrimPrefix(words[3][size:], " ")
	}
	slices.SortFunc(st.Parties, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(a.Name, b.Name))
	})
	st.Count = n
	return true
}
