package multilock_test

import (
	"context"
	"crypto/sha1"
	"fmt"
	"testing"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/contract"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// several makes a MultiLock of three locks on two servers. The two locks on the same server share a pipeline.
var several = contract.Kind{
	Servers: 2,
	Has:     contract.Reenters | contract.Counts | contract.Excludes | contract.Hints | contract.Mutexes,
	New: func(process []*rlock.Session) contract.Maker {
		return func(name string, options ...rlock.Option) contract.Lock {
			another := fmt.Sprintf("~%x", sha1.Sum([]byte(name))) // sorts last, so errors are about name
			ms := []*rlock.Mutex{fairlock.New(process[1], name), rlock.New(process[0], another),
				rlock.New(process[0], name)}
			l := multilock.New(ms[0], ms[1], ms[2])
			return contract.Lock{
				Locker: with{l, options},
				Do: func(ctx context.Context, fn func(context.Context) error, more ...rlock.Option) error {
					return l.Do(ctx, fn, append(options, more...)...)
				},
				Inspect: func(ctx context.Context) (st rlock.State, err error) { // of the first held member
					for i := len(ms) - 1; i >= 0 && err == nil; i-- {
						var found rlock.State
						if found, err = ms[i].Inspect(ctx); found.Held || i == 0 && !st.Held {
							st = found
						}
					}
					return st, err
				},
				Force: func(ctx context.Context) (all bool, err error) {
					all = true
					for i := 0; i < len(ms) && err == nil; i++ {
						var held bool
						held, err = ms[i].ForceUnlock(ctx)
						all = all && held
					}
					return all, err
				},
			}
		}
	},
}

// with is a Locker that adds options to each acquisition.
type with struct {
	rlock.Locker
	options []rlock.Option
}

func (w with) Lock(ctx context.Context, more ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return w.Locker.Lock(ctx, append(w.options, more...)...)
}

func (w with) TryLock(ctx context.Context, more ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return w.Locker.TryLock(ctx, append(w.options, more...)...)
}

// redLock makes a RedLock on three servers.
func redLock(options ...multilock.QuorumOption) contract.Kind {
	return contract.Kind{
		Servers: 3,
		Has: contract.Reenters | contract.Fences | contract.Excludes | contract.Turns | contract.Lines |
			contract.Alike | contract.Hints | contract.Mutexes,
		New: func(process []*rlock.Session) contract.Maker {
			q, err := multilock.NewQuorum(process, options...)
			if err != nil {
				panic(err)
			}
			return func(name string, options ...rlock.Option) contract.Lock {
				return contract.Mutex(q.New(name, options...))
			}
		},
	}
}

func TestContract(t *testing.T)          { contract.Run(t, several) }
func TestContractOfRedLock(t *testing.T) { contract.Run(t, redLock()) }
