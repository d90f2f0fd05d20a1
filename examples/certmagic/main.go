// Command certmagic has several instances of a web server get their certificates through
// certmagic, with Lockline's locks (storage.go). Only one of them asks the CA for a
// certificate, and the others use it. If that one dies, another one takes over.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/lockline/lockline/examples/internal/exampleredis"
	"github.com/lockline/lockline/rlock"
)

const (
	instances = 5
	lease     = 2 * time.Second // short, for the show; the default of 30 s is better for real ones
)

// ca is a certmagic.Issuer in this process. Real ones limit how many certificates of a name they issue.
type ca struct {
	key      *ecdsa.PrivateKey
	answer   func(ctx context.Context, requests int32) error // called with the number of requests so far; nil issues at once
	requests atomic.Int32
}

func newCA(answer func(context.Context, int32) error) (*ca, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return &ca{key: key, answer: answer}, err
}

func (*ca) IssuerKey() string { return "example" }

func (c *ca) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	n := c.requests.Add(1)
	if c.answer != nil {
		if err := c.answer(ctx, n); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(n)), DNSNames: request.DNSNames, NotBefore: now, NotAfter: now.Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, c.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// instance is one process of the web server, of which there are several.
type instance struct {
	rdb     *redis.Client
	session *rlock.Session
	cache   *certmagic.Cache
	config  *certmagic.Config
}

// newInstance makes one that keeps certificates in a directory that all share, as on a network file system.
func newInstance(url, directory string, issuer certmagic.Issuer, locks func(certmagic.Storage, *rlock.Session) certmagic.Storage) (*instance, error) {
	rdb, err := exampleredis.Connect(url)
	if err != nil {
		return nil, err
	}
	session, err := rlock.NewSession(rdb, rlock.WithWatchdogTimeout(lease), rlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	i := &instance{rdb: rdb, session: session}
	i.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return i.config, nil },
		Logger:           zap.NewNop(),
	})
	i.config = certmagic.New(i.cache, certmagic.Config{
		Storage: locks(&certmagic.FileStorage{Path: directory}, session),
		Issuers: []certmagic.Issuer{issuer},
		Logger:  zap.NewNop(),
	})
	return i, nil
}

func (i *instance) stop() {
	i.cache.Stop()
	_ = i.session.Close() // gives back the locks that it holds
	_ = i.rdb.Close()
}

// inRedis is how the storage should be.
func inRedis(keeps certmagic.Storage, session *rlock.Session) certmagic.Storage {
	return newStorage(keeps, session)
}

// unlocked is a storage without locks.
type unlocked struct{ certmagic.Storage }

func (unlocked) Lock(context.Context, string) error   { return nil }
func (unlocked) Unlock(context.Context, string) error { return nil }

func without(keeps certmagic.Storage, _ *rlock.Session) certmagic.Storage { return unlocked{keeps} }

// obtain has all instances get a certificate of one name at once, and returns how often the CA was asked.
func obtain(ctx context.Context, url string, issuer *ca, locks func(certmagic.Storage, *rlock.Session) certmagic.Storage) (requests int32, err error) {
	directory, err := os.MkdirTemp("", "certmagic")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(directory)
	failed := make([]error, instances)
	var all sync.WaitGroup
	for n := range instances {
		all.Go(func() {
			i, err := newInstance(url, directory, issuer, locks)
			if err != nil {
				failed[n] = err
				return
			}
			defer i.stop()
			failed[n] = i.config.ObtainCertSync(ctx, "www.example.com")
		})
	}
	all.Wait()
	return issuer.requests.Load(), errors.Join(failed...)
}

// takeOver has one instance die while it waits for the CA, and another one get the certificate.
func takeOver(ctx context.Context, url string) (requests int32, err error) {
	directory, err := os.MkdirTemp("", "certmagic")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(directory)
	asked, end := make(chan struct{}), make(chan struct{})
	issuer, err := newCA(func(_ context.Context, n int32) error {
		if n > 1 {
			return nil
		}
		close(asked)
		<-end
		return errors.New("this instance is dead")
	})
	if err != nil {
		return 0, err
	}
	var both [2]*instance
	for n := range both {
		if both[n], err = newInstance(url, directory, issuer, inRedis); err != nil {
			return 0, err
		}
		defer both[n].stop()
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer close(end)
	first, second := both[0], both[1]
	all.Go(func() { _ = first.config.ObtainCertSync(ctx, "www.example.com") })
	<-asked
	_ = first.rdb.Close() // as if the process were gone: it neither renews the lock nor releases it
	err = second.config.ObtainCertSync(ctx, "www.example.com")
	return issuer.requests.Load(), err
}

func run(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	all := make(chan struct{})
	slow, err := newCA(func(ctx context.Context, n int32) error { // answers when all have asked, as a slow one does
		if n == instances {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		return err
	}
	requests, err := obtain(ctx, url, slow, without)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Without locks, %d instances ask the CA %d times for one certificate.\n", instances, requests)

	quick, err := newCA(nil)
	if err != nil {
		return err
	}
	if requests, err = obtain(ctx, url, quick, inRedis); err != nil {
		return err
	}
	fmt.Fprintf(out, "With locks in Redis, they ask %d time.\n", requests)

	if requests, err = takeOver(ctx, url); err != nil {
		return err
	}
	fmt.Fprintf(out, "The instance that asks dies. When its lease is over, another one asks: %d times in all.\n", requests)
	return nil
}

func main() {
	exampleredis.Main(func(ctx context.Context, url string) error { return run(ctx, url, os.Stdout) })
}
