package redisson_test

import (
	"testing"

	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/testing/contract"
	"github.com/lockline/lockline/rlock"
)

func TestContractOnARealServer(t *testing.T) {
	t.Parallel()
	k := shared
	k.New = func(process []*rlock.Session) contract.Maker {
		return func(name string, options ...rlock.Option) contract.Lock {
			// Other tests use the same server, and the name is a key.
			return shared.New(process)(inner.Session(process[0]).Prefix+":"+name, options...)
		}
	}
	contract.RunReal(t, k)
}
