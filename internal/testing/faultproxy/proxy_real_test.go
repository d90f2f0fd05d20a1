package faultproxy

import (
	"testing"

	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestTheProxyFollowsItsServersFate(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := New(t, server.Addr)
	client := p.Client(t, impatient)
	must(t, client.Ping(t.Context()).Err())

	server.Freeze()
	if err := client.Ping(t.Context()).Err(); !isTimeout(err) {
		t.Errorf("frozen: error %v", err)
	}
	server.Kill()
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("a dead server answered")
	}
	server.Restart(t)
	must(t, client.Ping(t.Context()).Err())
}
