package locktest_test

import (
	"context"
	"testing"

	"github.com/lockline/lockline/internal/testing/contract"
	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/rlock"
)

func TestContract(t *testing.T) {
	contract.Run(t, contract.Kind{
		Has: contract.Reenters | contract.Counts | contract.Fences | contract.Excludes | contract.Turns |
			contract.Hints | contract.Mutexes,
		Space: func() contract.Space {
			space := new(locktest.Space)
			return contract.Space{
				New: func(name string, options ...rlock.Option) contract.Lock {
					l := space.New(name, options...)
					return contract.Lock{Locker: l, Do: l.Do,
						Inspect: func(context.Context) (rlock.State, error) {
							return space.Inspect(name), nil
						}}
				},
				Occupy: space.Occupy, Lose: space.Lose, Fail: space.Fail,
			}
		},
	})
}
