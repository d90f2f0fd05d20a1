package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// relay is the floor of a lock that each client hands to another: a published message for each hand-over, and nothing around it. It keeps to
// one order, and a client that goes away ends it.
func relay() contender {
	const noLock = "it is no lock; it takes part in crowd"
	rings := &sync.Map{} // *ring by name
	return contender{
		name:   "relay",
		module: "github.com/redis/go-redis/v9",
		config: "the floor of a hand-over among many: each client's PUBLISH to the next one in a ring; go-redis defaults",
		lacks:  lacks{noWaiting: noLock, waiting: noLock, aTurn: noLock, majority: noMajority},
		floor:  true,
		// It has no scripts.
		unscripted: []string{"publish"},
		dial: func(to setup) (client, error) {
			rdb, err := dialRedis(to.Redis[0])
			return relayClient{rdb, rings}, err
		},
	}
}

// ring is the clients that hand over one thing.
type ring struct {
	mu   sync.Mutex // guards size
	size int
}

func (r *ring) join() (number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size++
	return r.size - 1
}

// after is the number of the next one, once all have joined.
func (r *ring) after(number int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return (number + 1) % r.size
}

type relayClient struct {
	rdb   *redis.Client
	rings *sync.Map
}

func (c relayClient) mutex(name string) mutex {
	all, _ := c.rings.LoadOrStore(name, &ring{})
	m := &relayMutex{rdb: c.rdb, ring: all.(*ring), name: name, turn: make(chan struct{}, 1)}
	if m.number = m.ring.join(); m.number == 0 {
		m.turn <- struct{}{}
	}
	sub := c.rdb.Subscribe(context.Background(), m.channel(m.number)) // ends with its client
	if _, m.err = sub.Receive(context.Background()); m.err == nil {
		go m.listen(sub)
	}
	return m
}

func (c relayClient) close() error { return c.rdb.Close() }

type relayMutex struct {
	rdb    *redis.Client
	ring   *ring
	name   string
	number int
	turn   chan struct{} // has something when it is this one's turn
	err    error         // of subscribing
}

func (m *relayMutex) channel(number int) string { return fmt.Sprint(m.name, ":", number) }

func (m *relayMutex) listen(sub *redis.PubSub) {
	for {
		if _, err := sub.ReceiveMessage(context.Background()); err != nil {
			return
		}
		m.turn <- struct{}{}
	}
}

func (m *relayMutex) lock(ctx context.Context) (context.Context, error) {
	if m.err != nil {
		return ctx, m.err
	}
	select {
	case <-m.turn:
		return ctx, nil
	case <-ctx.Done():
		return ctx, context.Cause(ctx)
	}
}

func (m *relayMutex) unlock(ctx context.Context) error {
	return m.rdb.Publish(ctx, m.channel(m.ring.after(m.number)), "").Err()
}
