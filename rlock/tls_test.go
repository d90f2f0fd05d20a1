package rlock_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestLocksOverTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, caFile, ca := testredis.Certificate(t)
	server := testredis.Start(t)
	admin := server.Client(t)
	if len(admin.ConfigGet(bg, "tls-port").Val()) == 0 {
		const missing = "SKIPPED: this server was built without TLS"
		fmt.Fprintln(os.Stderr, missing) // tools/dev versions shows it
		t.Skip(missing)
	}
	for setting, value := range map[string]string{"tls-cert-file": certFile, "tls-key-file": keyFile, "tls-ca-cert-file": caFile, "tls-auth-clients": "no"} {
		must(t, admin.ConfigSet(bg, setting, value).Err())
	}
	var addr string
	eventually(t, "a port beside the one that the test knows the server by", func() bool {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		addr = listener.Addr().String()
		must(t, listener.Close())
		_, port, _ := net.SplitHostPort(addr)
		return admin.ConfigSet(bg, "tls-port", port).Err() == nil // else somebody took it
	})
	overTLS := func(o *redis.Options) { o.Addr, o.TLSConfig = addr, &tls.Config{RootCAs: ca} }
	rdb := server.Client(t, overTLS)

	waits := make(waitingSignal, 1)
	holder := newSession(t, rdb, rlock.WithWatchdogTimeout(300*time.Millisecond))
	waiter := newSession(t, rdb, rlock.WithObserver(waits))
	_, hold := lock(t, rlock.New(holder, "x"), bg)
	first := hold.Deadline()
	eventually(t, "renewed", func() bool { return hold.Deadline().After(first) || hold.Err() != nil })
	must(t, hold.Extend(bg, time.Minute)) // from here on only a message wakes in time
	got := make(chan error, 1)
	go func() {
		_, next, err := rlock.New(waiter, "x").Lock(bounded(t))
		if err == nil {
			err = next.Unlock(bg)
		}
		got <- err
	}()
	within(t, "waiting", waits)
	unlock(t, hold)
	must(t, <-got)

	stranger := newSession(t, server.Client(t, overTLS, func(o *redis.Options) { o.TLSConfig = &tls.Config{} }))
	if _, _, err := rlock.New(stranger, "x").Lock(bounded(t)); err == nil {
		t.Error("locked on a server whose certificate nobody vouches for")
	}
}
