package rwlock_test

import (
	"context"
	"testing"

	"github.com/lockline/lockline/internal/testing/contract"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

func writers(process []*rlock.Session) contract.Maker {
	return func(name string, options ...rlock.Option) contract.Lock {
		m := rwlock.New(process[0], name, options...)
		return contract.Lock{Locker: m, Do: m.Do, Inspect: m.Inspect,
			Force: m.ForceUnlock, ForceToken: m.ForceUnlockToken}
	}
}

func readers(process []*rlock.Session) contract.Maker {
	return func(name string, options ...rlock.Option) contract.Lock {
		m := rwlock.New(process[0], name, options...)
		return contract.Lock{Locker: m.RLocker(), Do: m.DoRead, Inspect: m.Inspect,
			ForceToken: m.ForceUnlockToken, Force: func(ctx context.Context) (bool, error) {
				n, err := m.ForceUnlockReaders(ctx)
				return n > 0, err
			}}
	}
}

var (
	writer = contract.Kind{Has: contract.Reenters | contract.Fences | contract.Excludes | contract.Turns |
		contract.Lines | contract.Hints | contract.Lingers, New: writers}
	besideReaders = contract.Kind{Has: contract.Reenters | contract.Fences | contract.Excludes |
		contract.Turns |
		contract.Hints | contract.Brief | contract.Lingers, New: writers, Rival: readers}
	reader = contract.Kind{Has: contract.Reenters | contract.Lines | contract.Lingers, New: readers,
		Rival: writers}
)

func TestContractOfWriters(t *testing.T)              { contract.Run(t, writer) }
func TestContractOfAWriterBesideReaders(t *testing.T) { contract.Run(t, besideReaders) }
func TestContractOfReaders(t *testing.T)              { contract.Run(t, reader) }
