package latch

import (
	"cmp"
	"context"
	"encoding/json"
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
	st := State{Name: l.Name()}
	a, err := l.ask(ctx, inspectScript)
	if err != nil {
		return st, err
	}
	count, text, _ := strings.Cut(a.rest, " ")
	n, err := strconv.Atoi(count)
	leases := map[string]string{}
	if err != nil || json.Unmarshal([]byte(text), &leases) != nil {
		return st, l.unexpected(a)
	}
	st.Count = n
	for name, lease := range leases {
		till, owner, _ := strings.Cut(lease, " ")
		session, _, _ := strings.Cut(owner, ":")
		left := time.Duration(protocol.TokenOrZero(till)-a.now) * time.Microsecond
		st.Parties = append(st.Parties, Member{name, owner, session, max(left, 0)})
	}
	slices.SortFunc(st.Parties, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(a.Name, b.Name))
	})
	return st, nil
}
