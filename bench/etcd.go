package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// etcdMutex competes by session: two goroutines of one session that lock the same
// name are both inside at once. So rivals have a session each.
func etcdMutex() contender {
	return contender{
		name:   "etcd",
		module: "go.etcd.io/etcd/client/v3",
		config: "concurrency.Mutex; a client for each client, with a session for each goroutine that competes for one lock, else one for all (TTL 60 s, kept alive). " +
			"One embedded etcd server in a process of its own, with its defaults: every write is synced to disk",
		lacks: lacks{
			reentrancy: "not reentrant. Its session can lock again, but the first Unlock frees the lock",
			crowding:   "it would need a server of its own. The commands of Redis are counted here",
			inRedis:    "it keeps nothing in Redis",
			majority:   "its servers are one group, not independent",
		},
		renewals: 3,
		foreign:  true,
		dial:     etcdDial(func(c *etcdClient, name string) mutex { return &etcdLock{client: c, name: name} }),
	}
}

// etcdDial makes clients with such mutexes.
func etcdDial(newMutex func(c *etcdClient, name string) mutex) func(setup) (client, error) {
	return func(to setup) (client, error) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{to.Etcd}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		e := &etcdClient{Client: c, setup: to, newMutex: newMutex}
		if to.Lease > 0 {
			e.options = append(e.options, concurrency.WithTTL(int(max(to.Lease, time.Second)/time.Second)))
		}
		return e, nil
	}
}

type etcdClient struct {
	*clientv3.Client
	setup
	newMutex func(c *etcdClient, name string) mutex
	options  []concurrency.SessionOption

	once     sync.Once  // makes the one session of those that are no rivals
	err      error      // of that
	mu       sync.Mutex // guards sessions, among rivals
	sessions []*concurrency.Session
}

func (c *etcdClient) mutex(name string) mutex { return c.newMutex(c, name) }

// session makes one for a rival, else returns the one of all.
func (c *etcdClient) session() (*concurrency.Session, error) {
	if c.Rivals {
		s, err := concurrency.NewSession(c.Client, c.options...)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sessions = append(c.sessions, s)
		}
		return s, err
	}
	c.once.Do(func() {
		var s *concurrency.Session
		if s, c.err = concurrency.NewSession(c.Client, c.options...); c.err == nil {
			c.sessions = append(c.sessions, s)
		}
	})
	if c.err != nil {
		return nil, c.err
	}
	return c.sessions[0], nil
}

// close leaves the leases to run out: to revoke a thousand takes long. Nothing happens where the end of a context has closed the client.
func (c *etcdClient) close() error {
	if c.Ctx().Err() != nil {
		return nil
	}
	for _, s := range c.sessions {
		s.Orphan()
	}
	return c.Client.Close()
}

type etcdLock struct {
	client *etcdClient
	name   string
	*concurrency.Mutex
}

func (m *etcdLock) lock(ctx context.Context) (context.Context, error) {
	if m.Mutex == nil {
		s, err := m.client.session()
		if err != nil {
			return ctx, err
		}
		m.Mutex = concurrency.NewMutex(s, m.name)
	}
	return ctx, m.Lock(ctx)
}

func (m *etcdLock) unlock(ctx context.Context) error { return m.Unlock(ctx) }

// serveEtcd is the role of an etcd server: one member, defaults, on free ports of loopback.
func serveEtcd(dir string) (addr string, stop func(), err error) {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop()) // it reports its own shutdown as errors
	local := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = local, local
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = local, local
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return "", nil, err
	}
	select {
	case <-e.Server.ReadyNotify():
		return e.Clients[0].Addr().String(), e.Close, nil
	case <-time.After(30 * time.Second):
		e.Close()
		return "", nil, errors.New("etcd does not become ready")
	}
}

// startEtcd starts the server's process, with its data in a directory that goes with it.
func startEtcd(ctx context.Context) (*helper, error) {
	dir, err := os.MkdirTemp("", "lockline-bench-etcd-")
	if err != nil {
		return nil, err
	}
	h, err := startHelper(ctx, roleEtcd, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("etcd: %w", err), os.RemoveAll(dir))
	}
	h.dir = dir
	return h, nil
}
