// Package memserver has Redis servers in memory. A server is miniredis. Clients reach it through proxies of
// package faultproxy, without a socket, so a server works in fake time and in real time. Package locktest
// imports this package into the tests of users, so this package must have few dependencies.
package memserver

import (
	"slices"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockline/lockline/internal/testing/faultproxy"
)

// Redis is a server in memory. Its keys expire by the clock, which is the fake clock in a synctest bubble.
type Redis struct {
	*miniredis.Miniredis
	t testing.TB

	mu      sync.Mutex // guards proxies
	proxies []*faultproxy.Proxy
}

// New starts a server. The server ends with the test.
func New(t testing.TB) *Redis {
	s := &Redis{Miniredis: miniredis.NewMiniRedis(), t: t}
	s.ClockTTL(true)
	t.Cleanup(s.Miniredis.Close)
	return s
}

// Proxy starts another proxy in front of the server. The proxy ends with the test.
func (s *Redis) Proxy() *faultproxy.Proxy {
	p := faultproxy.InMemory(s.t, s.Dial)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxies = append(s.proxies, p)
	return p
}

func (s *Redis) all() []*faultproxy.Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.proxies)
}

// Kill makes the server appear to have ended. The server forgets all keys and scripts. The proxies cut their
// connections, and refuse new connections until Serve.
func (s *Redis) Kill() {
	all := s.all()
	for _, p := range all {
		p.Refuse(true)
	}
	s.FlushAll()
	if len(all) > 0 {
		_, _ = all[0].Replay(faultproxy.Request{Args: []string{"SCRIPT", "FLUSH"}})
	}
}

// Serve starts a killed server, so that its proxies accept connections again.
func (s *Redis) Serve() {
	for _, p := range s.all() {
		p.Refuse(false)
	}
}

// Restart ends the server, if it has not ended yet, and starts it without data.
func (s *Redis) Restart() {
	s.Kill()
	s.Serve()
}
