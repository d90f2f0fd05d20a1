//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// secured has the files for --cacert, --cert and --key. Servers use the same files, and require a certificate
// of each client.
type secured struct {
	cert, key, ca string
	pool          *x509.CertPool
}

func (s secured) flags() []string {
	return []string{"--cacert", s.ca, "--cert", s.cert, "--key", s.key}
}

// start starts a server that has a second port for TLS. It returns the address of this port.
func (s secured) start(t *testing.T, args ...string) (addr string, server *testredis.Server) {
	t.Helper()
	port := strconv.Itoa(testredis.FreePort(t))
	server = testredis.Start(t, append([]string{
		"--tls-port", port, "--tls-cert-file", s.cert, "--tls-key-file", s.key,
		"--tls-ca-cert-file", s.ca, "--tls-auth-clients", "yes",
	}, args...)...)
	return "127.0.0.1:" + port, server
}

// sentinel starts a Sentinel that accepts only TLS, and returns its address.
func (s secured) sentinel(t *testing.T, master string) (addr string) {
	t.Helper()
	bin, _ := testredis.Binary() // the binary exists, because a master runs
	port := testredis.FreePort(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port 0\ntls-port %d\nbind 127.0.0.1\ndir %s\n"+
		"tls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-replication yes\n"+
		"sentinel monitor lockline %s 1\n",
		port, dir, s.cert, s.key, s.ca, strings.Replace(master, ":", " ", 1))
	testlock.Must(t, os.WriteFile(conf, []byte(text), 0o600))
	cmd := exec.Command(bin, conf, "--sentinel")
	cmd.SysProcAttr = testredis.EndWithParent()
	testlock.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	testlock.Must(t, err)
	addr = fmt.Sprint("127.0.0.1:", port)
	client := redis.NewSentinelClient(&redis.Options{Addr: addr,
		TLSConfig: &tls.Config{RootCAs: s.pool, Certificates: []tls.Certificate{pair}}})
	defer client.Close()
	testlock.Eventually(t, "the Sentinel sees its master", func() bool {
		state, err := client.Master(context.Background(), "lockline").Result()
		return err == nil && state["flags"] == "master"
	})
	return addr
}

func TestTLSOfServerClusterAndSentinels(t *testing.T) {
	t.Parallel()
	var s secured
	s.cert, s.key, s.ca, s.pool = testredis.Certificate(t)
	server, _ := s.start(t)
	node, only := s.start(t, "--cluster-enabled", "yes", "--tls-cluster", "yes",
		"--cluster-announce-ip", "127.0.0.1")
	testlock.Must(t, only.Client(t).ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	sentinel := s.sentinel(t, server)
	execTLS := func(url string, code int, says string, args ...string) {
		t.Helper()
		line := slices.Concat([]string{"exec", "--redis", url}, args, []string{"n", "--", "true"})
		p := start(t, exec.Command(os.Args[0], line...))
		p.wantCode(code)
		if said := p.errOut.String(); !strings.Contains(said, says) {
			t.Errorf("%s %v: %s", url, args, said)
		}
	}
	testlock.Eventually(t, "the Cluster is up", func() bool {
		return strings.Contains(only.Client(t).ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	for _, to := range []string{server, node, sentinel + "?master_name=lockline"} {
		execTLS("rediss://"+to, 0, "", s.flags()...)
	}
	for _, to := range []string{server, node + "?addr=" + node, sentinel + "?master_name=lockline"} {
		execTLS("rediss://"+to, exitTrouble, "name the file of its CA with --cacert", s.flags()[2:]...)
	}
	execTLS("rediss://"+server, exitTrouble, "certificate required", s.flags()[:2]...)
	for _, join := range []string{"?", "?addr=" + node + "&"} {
		execTLS("rediss://"+node+join+"skip_verify=true", 0, "", s.flags()[2:]...)
	}
	for _, to := range []string{server, "x?addr=x:1", "x?master_name=x"} {
		execTLS("redis://"+to, exitTrouble,
			"(LOCKLINE_CACERT and so on) are for TLS: the URL of --redis must begin with rediss://",
			s.flags()...)
	}
	plain := testredis.Start(t).Addr
	for _, to := range []string{plain + "?dial_timeout=200ms", plain + "?dial_timeout=200ms&master_name=x"} {
		execTLS("rediss://"+to, exitTrouble, "--redis must begin with redis://")
	}
	for _, to := range []string{server, sentinel + "?master_name=lockline"} {
		// For exec, this error could mean that Redis is restarting. So exec tries again until its wait ends.
		execTLS("redis://"+to, exitTrouble, "--redis must begin with rediss://", "--wait", "3s")
	}
	execTLS("rediss://"+server, exitTrouble, "--cert and --key go together", s.flags()[:4]...)
	execTLS("rediss://"+server, exitTrouble, "no certificate in", "--cacert", s.key)
	execTLS("rediss://"+server, exitTrouble, "no such file", "--cacert", filepath.Join(t.TempDir(), "none"))

	inspect := exec.Command(os.Args[0], "inspect", "n")
	inspect.Env = append(os.Environ(), "LOCKLINE_REDIS=rediss://"+node, "LOCKLINE_CACERT="+s.ca,
		"LOCKLINE_CERT="+s.cert, "LOCKLINE_KEY="+s.key)
	if out, err := inspect.CombinedOutput(); err != nil || !strings.Contains(string(out), "free") {
		t.Errorf("inspect: %v, %s", err, out)
	}

	var out bytes.Buffer
	to := target{URL: "rediss://" + server, CACert: s.ca, Cert: s.cert, Key: s.key}
	if err := runDemo(t.Context(), to, time.Second, &out); err != nil {
		t.Errorf("demo: %v\n%s", err, &out)
	}
}
