package testredis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate makes a CA, and a certificate for 127.0.0.1 that this CA has signed. It writes the certificate,
// its key and the certificate of the CA to files. ca contains only this CA.
func Certificate(t testing.TB) (certFile, keyFile, caFile string, ca *x509.CertPool) {
	t.Helper()
	dir := t.TempDir()
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
	template.SerialNumber, template.Subject, template.IsCA, template.KeyUsage = big.NewInt(2),
		pkix.Name{CommonName: "redis"}, false, x509.KeyUsageDigitalSignature
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	cert := create(&template, caCert, key, caKey)
	der, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	ca = x509.NewCertPool()
	ca.AddCert(caCert)
	return write("cert.pem", "CERTIFICATE", cert.Raw), write("key.pem", "EC PRIVATE KEY", der),
		write("ca.pem", "CERTIFICATE", caCert.Raw), ca
}
