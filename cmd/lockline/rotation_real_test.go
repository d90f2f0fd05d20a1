//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// reconnects ends all connections of clients to the server. Then it sends a PING by rdb, and returns the
// error.
func reconnects(t *testing.T, server *testredis.Server, rdb redis.UniversalClient) error {
	t.Helper()
	admin := server.Client(t)
	testlock.Must(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	return rdb.Ping(t.Context()).Err()
}

func TestCertificatesAreReadAgainForEachConnection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := secured{cert: filepath.Join(dir, "cert"), key: filepath.Join(dir, "key"),
		ca: filepath.Join(dir, "ca")}
	replace := func() { // replaces the three files by files of a new CA
		cert, key, ca, _ := testredis.Certificate(t)
		for from, to := range map[string]string{cert: files.cert, key: files.key, ca: files.ca} {
			text, err := os.ReadFile(from)
			testlock.Must(t, err)
			testlock.Must(t, os.WriteFile(to, text, 0o600))
		}
	}
	replace()
	addr, server := files.start(t)
	rdb, err := target{URL: "rediss://" + addr, CACert: files.ca, Cert: files.cert, Key: files.key}.
		open(t.Context())
	testlock.Must(t, err)
	defer rdb.Close()
	testlock.Must(t, rdb.Ping(t.Context()).Err())
	replace()
	server.Kill()
	server.Restart(t) // the server reads the new files
	testlock.Must(t, rdb.Ping(t.Context()).Err())
	testlock.Must(t, os.WriteFile(files.key, nil, 0o600)) // as while a program writes the file
	testlock.Must(t, reconnects(t, server, rdb))
}

func TestThePasswordInTheFileIsReadAgainForEachConnection(t *testing.T) {
	t.Parallel()
	one, node := testredis.Start(t), testredis.Start(t, "--cluster-enabled", "yes")
	testlock.Must(t, node.Client(t).ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	testlock.Eventually(t, "the Cluster is up", func() bool {
		return strings.Contains(node.Client(t).ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	for _, server := range []*testredis.Server{one, node} {
		file := filepath.Join(t.TempDir(), "url")
		password := func(word string) {
			rules := []any{"ACL", "SETUSER", "u", "on", "resetpass", ">" + word, "~*", "+@all"}
			testlock.Must(t, server.Client(t).Do(t.Context(), rules...).Err())
		}
		write := func(text string) { testlock.Must(t, os.WriteFile(file, []byte(text+"\n"), 0o600)) }
		password("first")
		url := "redis://u:first@" + server.Addr
		write(url)
		rdb, err := target{URL: url, file: file}.open(t.Context())
		testlock.Must(t, err)
		defer rdb.Close()
		testlock.Must(t, reconnects(t, server, rdb))
		password("second")
		if err := reconnects(t, server, rdb); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("with the old password: %v", err)
		}
		write("redis://u:second@" + server.Addr)
		testlock.Must(t, reconnects(t, server, rdb))
		write("") // as while a program writes the file
		testlock.Must(t, reconnects(t, server, rdb))
	}
}
