package main

import (
	"context"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// message is the floor of a hand-over: a published message, and one round trip of its receiver.
func message() contender {
	const noLock = "it is no lock; it takes part in handoff"
	return contender{
		name:   "message",
		module: "github.com/redis/go-redis/v9",
		config: "the floor of a hand-over: PUBLISH, and a PING of the message's receiver; go-redis defaults",
		lacks:  lacks{aLock: noLock, waiting: noLock},
		floor:  true,
		// It has no scripts.
		unscripted: []string{"set", "publish"},
		dial: func(to setup) (client, error) {
			rdb, err := dialRedis(to.Redis[0])
			return messageClient{rdb}, err
		},
	}
}

type messageClient struct{ rdb *redis.Client }

func (c messageClient) mutex(name string) mutex {
	// Before its worker is said to be ready: a message that is sent earlier is lost.
	sub := c.rdb.Subscribe(context.Background(), name) // ends with its client
	_, err := sub.Receive(context.Background())
	return &messageMutex{rdb: c.rdb, name: name, id: uuid.NewString(), sub: sub, err: err}
}

func (c messageClient) close() error { return c.rdb.Close() }

type messageMutex struct {
	rdb      *redis.Client
	name, id string
	sub      *redis.PubSub
	err      error // of subscribing
	asked    bool
}

// lock waits for the other's message. The first call of all need not.
func (m *messageMutex) lock(ctx context.Context) (context.Context, error) {
	if m.err != nil {
		return ctx, m.err
	}
	if !m.asked {
		m.asked = true
		if first, err := m.rdb.SetNX(ctx, m.name, m.id, defaultLease).Result(); first || err != nil {
			return ctx, err
		}
	}
	for {
		switch got, err := m.sub.ReceiveMessage(ctx); {
		case err != nil:
			return ctx, err
		case got.Payload != m.id:
			return ctx, m.rdb.Ping(ctx).Err()
		}
	}
}

func (m *messageMutex) unlock(ctx context.Context) error {
	return m.rdb.Publish(ctx, m.name, m.id).Err()
}
