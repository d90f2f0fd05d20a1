package handle

import "github.com/lockline/lockline/internal/failure"

// State is what became of a grant, or of a hold of it.
type State uint8

const (
	Held     State = iota
	Released       // by its last Unlock
	Lost           // its lease ran out, or Redis does not have it any more
	Closed         // given back by its session
)

func (s State) String() string { return [...]string{"held", "released", "lost", "closed"}[s] }

// ErrorOf is the error of a hold in that state; nil while it is held.
func ErrorOf(s State) error {
	return [...]error{nil, failure.ErrNotHeld, failure.ErrLost, failure.ErrClosed}[s]
}
