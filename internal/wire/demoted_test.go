package wire

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
)

// The address of the client leads to another server than its pooled connections.
func TestARequestIsAnsweredThoughAllPooledConnectionsLeadToADemotedServer(t *testing.T) {
	for what, refusal := range map[string]string{
		"Redis 7": "READONLY You can't write against a read only replica. script: f00, on @user_script:3.",
		"Redis 6.2": "ERR Error running script (call to f_f00): @user_script:3: @user_script: 3: " +
			"-READONLY You can't write against a read only replica.",
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old, promoted := miniredis.NewMiniRedis(), miniredis.NewMiniRedis()
				defer old.Close()
				defer promoted.Close()
				endpoint := faultproxy.InMemory(t, old.Dial)
				client := endpoint.Client(t)
				const pooled = 30
				fill(t, endpoint, client, pooled)
				old.SetError(refusal)
				endpoint.LeadTo(promoted.Dial)
				l := NewLink(client, Options{Context: t.Context()})
				endpoint.Reset()
				began := time.Now()
				o := l.Call(t.Context(), copier{NewScript("return 'x'")}, 1, nil)
				if o.Reply != "x" || o.Err != nil {
					t.Errorf("reply %q, error %v", o.Reply, o.Err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %v, want no pause", took)
				}
				if n := endpoint.Count("EVALSHA"); n != pooled+1 {
					t.Errorf("%d requests, want one for each pooled connection, and one more", n)
				}
			})
		})
	}
}

// The endpoint may lead to the replica before the failover has ended.
func TestARequestIsNotSentWithoutEndToAReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		defer server.Close()
		endpoint := faultproxy.InMemory(t, server.Dial)
		client := endpoint.Client(t)
		fill(t, endpoint, client, 5)
		server.SetError("READONLY You can't write against a read only replica.")
		l := NewLink(client, Options{Context: t.Context()})
		endpoint.Reset()
		o := l.Call(t.Context(), copier{NewScript("return 'x'")}, Tries, nil)
		if o.Err == nil || !strings.HasPrefix(o.Err.Error(), "READONLY ") || !Judge(o.Err).Transient {
			t.Errorf("error %v", o.Err)
		}
		if n := endpoint.Count("EVALSHA"); n != 5+Tries {
			t.Errorf("%d requests, want %d", n, 5+Tries)
		}
	})
}

// fill makes n connections of the client to a server. The connections are idle afterward.
func fill(t *testing.T, endpoint *faultproxy.Proxy, client *redis.Client, n int) {
	t.Helper()
	release := make(chan struct{})
	endpoint.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if r.Is("ECHO") {
			<-release
		}
		return faultproxy.Pass
	})
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := client.Echo(t.Context(), "x").Err(); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	close(release)
	all.Wait()
	endpoint.OnRequest(nil)
	if got := int(client.PoolStats().IdleConns); got != n {
		t.Fatalf("%d idle connections, want %d", got, n)
	}
}
