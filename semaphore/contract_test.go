package semaphore_test

import (
	"context"
	"testing"

	"github.com/lockline/lockline/internal/testing/contract"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

// permits returns a Maker whose locks are n permits of a semaphore.
func permits(n, limit int) func(process []*rlock.Session) contract.Maker {
	return func(process []*rlock.Session) contract.Maker {
		return func(name string, options ...rlock.Option) contract.Lock {
			s := semaphore.New(process[0], name, limit, options...)
			return contract.Lock{
				Locker: s.Locker(n),
				Do: func(ctx context.Context, fn func(context.Context) error, options ...rlock.Option) error {
					return s.Do(ctx, n, fn, options...)
				},
				Inspect: s.Inspect,
				Force: func(ctx context.Context) (forced bool, err error) {
					found, err := s.Inspect(ctx)
					for _, h := range found.Holders {
						if forced, err = s.ForceRelease(ctx, h.Token); err != nil {
							break
						}
					}
					return forced, err
				},
				ForceToken: s.ForceRelease,
			}
		}
	}
}

var (
	one = contract.Kind{Has: contract.Excludes | contract.Turns | contract.Lines | contract.Lingers,
		New: permits(1, 1)}
	oneOfThree = contract.Kind{Has: contract.Lines | contract.Lingers, New: permits(1, 3),
		Rival: permits(3, 3)}
)

func TestContractOfOnePermit(t *testing.T)        { contract.Run(t, one) }
func TestContractOfOnePermitOfThree(t *testing.T) { contract.Run(t, oneOfThree) }
