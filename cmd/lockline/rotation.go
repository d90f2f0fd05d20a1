package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// dialer is the type of Dialer in the options of go-redis.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialTimeout is the DialTimeout that go-redis uses by default.
const dialTimeout = 5 * time.Second

// keepAlive has the settings that go-redis uses for keep-alive messages.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// secure returns a dialer for the files of --cacert, --cert and --key. The dialer reads the files again for
// each connection, because certificates may be replaced while a command runs. If it cannot read a file, a
// program may be replacing the file. So the dialer then uses the certificates that it has read last. If no
// files are given, the dialer is nil.
//
// c is the TLS configuration from the URL, or nil if the URL has no TLS. If a server without TLS does not
// answer the handshake, go-redis dials five times, for five seconds each. So secure lowers the number of
// dials to two, unless the URL sets the number.
func (t target) secure(c *tls.Config, dials *int, timeout time.Duration) (dialer, error) {
	if c != nil {
		*dials = cmp.Or(*dials, 2)
	}
	switch {
	case cmp.Or(t.CACert, t.Cert, t.Key) == "":
		return nil, nil
	case c == nil:
		variables := " (LOCKLINE_CACERT and so on)"
		if t.noVariables {
			variables = ""
		}
		return nil, errors.New("--cacert, --cert and --key" + variables + " are for TLS: " +
			"the URL of --redis must begin with rediss://")
	case (t.Cert == "") != (t.Key == ""):
		return nil, errors.New("--cert and --key go together")
	}
	last, err := t.withFiles(c)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards last
	current := func() *tls.Config {
		mu.Lock()
		defer mu.Unlock()
		if read, err := t.withFiles(c); err == nil {
			last = read
		}
		return last
	}
	plain := &net.Dialer{Timeout: cmp.Or(timeout, dialTimeout), KeepAliveConfig: keepAlive}
	return func(_ context.Context, network, addr string) (net.Conn, error) {
		return tls.DialWithDialer(plain, network, addr, current()) // as go-redis does
	}, nil
}

// withFiles returns a copy of c with the certificates of the files.
func (t target) withFiles(c *tls.Config) (*tls.Config, error) {
	c = c.Clone()
	if t.CACert != "" {
		pem, err := os.ReadFile(t.CACert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--cacert: no certificate in %s", t.CACert)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// credentials is the type of CredentialsProviderContext in the options of go-redis.
type credentials = func(context.Context) (user, password string, err error)

// rotated returns a function that reads the user and the password from --redis-file at each call. parse
// returns the user and the password of a URL. If the file has no URL at that time, the function returns the
// last user and password. If the URL does not come from a file, rotated returns nil.
func (t target) rotated(parse func(url string) (user, password string, err error)) credentials {
	if t.file == "" {
		return nil
	}
	var mu sync.Mutex // guards user and password
	user, password, _ := parse(t.URL)
	return func(context.Context) (string, string, error) {
		mu.Lock()
		defer mu.Unlock()
		if url, err := readURL(t.file); err == nil {
			if u, p, err := parse(url); err == nil {
				user, password = u, p
			}
		}
		return user, password, nil
	}
}
