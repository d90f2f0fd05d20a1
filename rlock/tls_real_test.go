package rlock_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
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
	for setting, value := range map[string]string{"tls-cert-file": certFile, "tls-key-file": keyFile,
		"tls-ca-cert-file": caFile, "tls-auth-clients": "no"} {
		testlock.Must(t, admin.ConfigSet(bg, setting, value).Err())
	}
	var addr string
	testlock.Eventually(t, "a port beside the one that the test knows the server by", func() bool {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		testlock.Must(t, err)
		addr = listener.Addr().String()
		testlock.Must(t, listener.Close())
		_, port, _ := net.SplitHostPort(addr)
		return admin.ConfigSet(bg, "tls-port", port).Err() == nil // false if the port is taken
	})
	overTLS := func(o *redis.Options) { o.Addr, o.TLSConfig = addr, &tls.Config{RootCAs: ca} }
	rdb := server.Client(t, overTLS)

	waits := make(testlock.Waits, 1)
	holder := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(5*time.Second))
	waiter := testlock.NewSession(t, rdb, rlock.WithObserver(waits))
	_, hold := testlock.Lock(t, rlock.New(holder, "x"), bg)
	testlock.Renewed(t, hold, 0)
	testlock.Must(t, hold.Extend(bg, time.Minute)) // so that only a message can wake the waiter in time
	got := make(chan error, 1)
	go func() { got <- testlock.Cycle(testlock.Bounded(t), rlock.New(waiter, "x")) }()
	testlock.Receive(t, "waiting", waits)
	testlock.Unlock(t, hold)
	testlock.Must(t, <-got)

	stranger := testlock.NewSession(t, server.Client(t, overTLS, func(o *redis.Options) {
		o.TLSConfig = &tls.Config{}
	}))
	if _, _, err := rlock.New(stranger, "x").Lock(testlock.Bounded(t)); err == nil {
		t.Error("locked on a server whose certificate nobody vouches for")
	}
}
