package mutex

import (
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

type alone struct{}

// Alone is the Unit of one lock.
var Alone Unit = alone{}

func (alone) Claim(*Acquisition) error { return nil }
func (alone) Withdraw()                {}
func (alone) Keep()                    {}
func (alone) Along() int               { return 0 }

func (alone) Script(a *Acquisition) *wire.Script { return a.Lock.Kind.Lock }

func (alone) Keys(a *Acquisition) *protocol.Keys { return a.Lock.Keys }

func (alone) Answered(o wire.Outcome) wire.Outcome { return o }

func (alone) Refused(protocol.Answer) error { return nil }

func (alone) Granted(a *Acquisition, base time.Time, tokens string) (*Entry, bool, error) {
	return a.Take(base, tokens)
}

func (alone) Inherit(a *Acquisition, h Handoff) (*Entry, error) { return a.Succeed(h) }

func (alone) Decline(a *Acquisition, h Handoff) <-chan struct{} { return h.Tenure.Decline(a.Ctx, nil) }

func (alone) RollBack(a *Acquisition, granted bool) {
	if granted {
		a.RollBack()
	}
	a.Lock.Pass()
}

func (alone) ReleaseUntilDone(a *Acquisition) { a.ReleaseUntilDone() }
