// Package memserver has Redis servers in memory: miniredis, which clients reach through proxies of package
// faultproxy and net.Pipe, without a socket. They work in fake time and in real time. Users get them by
// package locktest, so this package imports nothing that users should not build.
package memserver

import (
	"slices"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockline/lockline/internal/testing/faultproxy"
)

// Redis is a server in memory. Its keys expire by the clock, which in a synctest bubble is the fake one.
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

// Proxy starts one more proxy that leads to the server. The proxy ends with the test.
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

// Kill ends the server: all keys and scripts are forgotten, connections are cut, and dials are refused, until
// Serve.
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

// Serve ends a Kill: the server accepts connections again.
func (s *Redis) Serve() {
	for _, p := range s.all() {
		p.Refuse(false)
	}
}

// Restart ends the server, if it runs, and starts it without data.
func (s *Redis) Restart() {
	s.Kill()
	s.Serve()
}
