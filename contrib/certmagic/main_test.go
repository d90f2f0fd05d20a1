package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestMain(m *testing.M) { testredis.Run(m) }

// A ca is a certmagic.Issuer in this process. (A real CA limits how many certificates it issues for a name.)
type ca struct {
	key      *ecdsa.PrivateKey
	answer   func(ctx context.Context, request int32) error // request counts from 1; nil: no error
	requests atomic.Int32
}

func newCA(t *testing.T, answer func(ctx context.Context, request int32) error) *ca {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testlock.Must(t, err)
	return &ca{key: key, answer: answer}
}

func (*ca) IssuerKey() string { return "example" }

func (c *ca) Issue(ctx context.Context, request *x509.CertificateRequest) (
	*certmagic.IssuedCertificate, error) {
	n := c.requests.Add(1)
	if c.answer != nil {
		if err := c.answer(ctx, n); err != nil {
			return nil, err
		}
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(n)), DNSNames: request.DNSNames,
		NotBefore: time.Now(), NotAfter: time.Now().Add(90 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, c.key)
	if err != nil {
		return nil, err
	}
	block := &pem.Block{Type: "CERTIFICATE", Bytes: der}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(block)}, nil
}

var errRefused = errors.New("the CA is down")

// instance returns the configuration that one process of a web server has. Its cache is stopped when the test
// ends.
func instance(t *testing.T, storage certmagic.Storage, issuer certmagic.Issuer) *certmagic.Config {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{
		Storage: storage, Issuers: []certmagic.Issuer{issuer}, Logger: zap.NewNop(),
	})
	return config
}
