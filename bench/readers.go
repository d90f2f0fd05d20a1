package main

import (
	"context"
	"slices"

	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

// shareable is a mutex that may have another way to lock it, beside other readers.
type shareable interface {
	// reader is that way, for the same goroutine; nil if there is none.
	reader() mutex
}

// toRead is how to lock m to read. A library without that locks it as always.
func toRead(m mutex) mutex {
	if s, ok := m.(shareable); ok {
		if r := s.reader(); r != nil {
			return r
		}
	}
	return m
}

// exclusives are the contenders that stand for all locks of one holder where most only read.
var exclusives = []string{"rlock", "redislock", "redislock-exp"}

// rwLocks are the contenders that let readers in together.
func rwLocks() []contender {
	return []contender{
		lockline("rwlock", func(s []*rlock.Session, name string) rlock.Locker { return rwlock.New(s[0], name) }).onlyFor(besides(readOrWrite)),
		etcdRWMutex(),
	}
}

func (m *locklineMutex) reader() mutex {
	if l, ok := m.Locker.(interface{ RLocker() rlock.Locker }); ok {
		return &locklineMutex{Locker: l.RLocker()}
	}
	return nil
}

// etcdRWMutex is of etcd's experimental recipes.
func etcdRWMutex() contender {
	c := etcdMutex()
	c.name, c.lacks = "etcd-rw", besides(readOrWrite)
	c.config = "recipe.RWMutex of etcd's experimental recipes; clients, sessions and server as of etcd"
	c.dial = etcdDial(func(c *etcdClient, name string) mutex { return &etcdRW{client: c, name: name} })
	return c
}

// etcdRW is for one goroutine, which has either way only one at a time.
type etcdRW struct {
	client *etcdClient
	name   string
	*recipe.RWMutex
}

func (m *etcdRW) lock(ctx context.Context) (context.Context, error) {
	return ctx, m.take(ctx, (*recipe.RWMutex).Lock)
}
func (m *etcdRW) unlock(context.Context) error { return m.Unlock() }
func (m *etcdRW) reader() mutex                { return etcdReader{m} }

// take makes the session, if there is none. The recipes know no context, so that its end closes their client.
func (m *etcdRW) take(ctx context.Context, lock func(*recipe.RWMutex) error) error {
	if m.RWMutex == nil {
		s, err := m.client.session()
		if err != nil {
			return err
		}
		m.RWMutex = recipe.NewRWMutex(s, m.name)
	}
	defer context.AfterFunc(ctx, func() { _ = m.client.Client.Close() })()
	return lock(m.RWMutex)
}

type etcdReader struct{ *etcdRW }

func (m etcdReader) lock(ctx context.Context) (context.Context, error) {
	return ctx, m.take(ctx, (*recipe.RWMutex).RLock)
}
func (m etcdReader) unlock(context.Context) error { return m.RUnlock() }

// besides are the lacks of what serves one need alone.
func besides(served need) lacks {
	const other = "it is no lock of one holder"
	all := lacks{aLock: other, waiting: other, aTurn: other}
	for n, reason := range lacksOfLocks {
		all[n] = reason
	}
	all[readOrWrite] = "it is no lock"
	delete(all, served)
	return all
}

// lacksOfLocks is why a lock takes no part in what is made for others.
var lacksOfLocks = lacks{
	readOrWrite: "it would do as rlock and redislock do there, which let readers in one at a time",
	somePermits: "it is no semaphore",
	aLatch:      "it is no latch",
}

// locks adds to what contenders lack that are locks of one holder, or the floors beside these.
func locks(all []contender) []contender {
	for i, c := range all {
		for n, reason := range lacksOfLocks {
			if n != readOrWrite || !slices.Contains(exclusives, c.name) {
				all[i] = all[i].lacking(n, reason)
			}
		}
	}
	return all
}
