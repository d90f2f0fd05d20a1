package rlock_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

// certificate writes a server certificate and its key to dir, signed by a CA that is made for it.
func certificate(t *testing.T, dir string) (certFile, keyFile, caFile string, ca *x509.CertPool) {
	t.Helper()
	create := func(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		must(t, err)
		cert, err := x509.ParseCertificate(der)
		must(t, err)
		return cert
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		return key
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, key := newKey(), newKey()
	caCert := create(&template, &template, caKey, caKey)
	template.SerialNumber, template.Subject, template.IsCA, template.KeyUsage = big.NewInt(2), pkix.Name{CommonName: "redis"}, false, x509.KeyUsageDigitalSignature
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	cert := create(&template, caCert, key, caKey)
	der, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	ca = x509.NewCertPool()
	ca.AddCert(caCert)
	return write("cert.pem", "CERTIFICATE", cert.Raw), write("key.pem", "EC PRIVATE KEY", der), write("ca.pem", "CERTIFICATE", caCert.Raw), ca
}

func TestLocksOverTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, caFile, ca := certificate(t, t.TempDir())
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
