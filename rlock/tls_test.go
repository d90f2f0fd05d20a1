package rlock_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// wrongPort returns a client that speaks TLS to a server that does not, or the other way round.
func wrongPort(
	t *testing.T, o redis.Options, dial func(ctx context.Context) (net.Conn, error),
) *redis.Client {
	o.Addr = "127.0.0.1:1"
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	rdb := redis.NewClient(&o)
	t.Cleanup(func() {
		_ = rdb.Close()
		time.Sleep(time.Minute) // go-redis goes on dialing for a while
	})
	return rdb
}

// hangsUp is a connection that the server closes when it has received something.
type hangsUp struct{ net.Conn }

func (hangsUp) Write(b []byte) (int, error) { return len(b), nil }
func (hangsUp) Read([]byte) (int, error)    { return 0, io.EOF }

// Redis 7.0 without TLS does not reply to the handshake, because it waits for the end of a line. When TryLock
// repeated its request, it took 101.7 s: four requests with five dials each.
func TestATLSHandshakeWithoutAnAnswerIsNotRepeatedByTryLock(t *testing.T) {
	testlock.InFakeTime(t, func(t *testing.T) {
		config := &tls.Config{ServerName: "wrong"}
		rdb := wrongPort(t, redis.Options{TLSConfig: config}, func(ctx context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = io.Copy(io.Discard, theirs)
				_ = theirs.Close()
			}()
			secure := tls.Client(ours, config)
			return secure, secure.HandshakeContext(ctx)
		})
		m := rlock.New(testlock.NewSession(t, rdb), "x")

		began := time.Now()
		_, _, err := m.TryLock(bg)
		if took := time.Since(began); took > 26*time.Second {
			t.Errorf("TryLock took %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "does the server speak TLS?") {
			t.Errorf("TryLock: %v", err)
		}
		began = time.Now()
		_, _, err = m.Lock(bg)
		if took := time.Since(began); took < lease || took > 2*lease {
			t.Errorf("Lock, which rides an outage out, took %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "does the server speak TLS?") {
			t.Errorf("Lock: %v", err)
		}
	})
}

func TestAServerThatHangsUpOnTheFirstRequestMaySpeakTLS(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := wrongPort(t, redis.Options{}, func(context.Context) (net.Conn, error) {
			ours, _ := net.Pipe()
			return hangsUp{ours}, nil
		})
		_, _, err := rlock.New(testlock.NewSession(t, rdb), "x").TryLock(bg)
		if err == nil || !strings.Contains(err.Error(), "if it speaks TLS, give the client a TLSConfig") {
			t.Errorf("before an answer: %v", err)
		}

		m := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		w.Net.OnRequest(func(*faultproxy.Request) faultproxy.Action { return faultproxy.DropAndCut })
		_, _, err = m.TryLock(bg)
		if err == nil || strings.Contains(err.Error(), "TLS") {
			t.Errorf("after an answer: %v", err)
		}
		w.Net.OnRequest(nil)
	})
}
