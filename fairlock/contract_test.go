package fairlock_test

import (
	"testing"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/contract"
	"github.com/lockline/lockline/rlock"
)

var fair = contract.Kind{
	Has: contract.Reenters | contract.Counts | contract.Fences | contract.Excludes | contract.Turns |
		contract.Lines | contract.Hints | contract.Mutexes,
	New: func(process []*rlock.Session) contract.Maker {
		return func(name string, options ...rlock.Option) contract.Lock {
			return contract.Mutex(fairlock.New(process[0], name, options...))
		}
	},
}

func TestContract(t *testing.T) { contract.Run(t, fair) }
